//! From a person to a pose set: draws every part once, puts the parts together, encodes every combination.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Bytes;
use character::{OutOfRange, Patch, Picture, Pose, Rect, Sitter, Stage};
use sha2::{Digest, Sha256};

use super::breath::Chest;
use super::people::Person;
use super::picture::I420;
use super::set::{self, Key, Look, Manifest, PoseSet, Stance};
use super::vp8::{self, Decoder, Encoder};
use super::webp;

pub use super::plan::Plan;

/// Baking failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The character.
    #[error(transparent)]
    Character(#[from] OutOfRange),
    /// The encoder refused.
    #[error(transparent)]
    Vp8(#[from] vp8::Error),
    /// The set does not fit together.
    #[error(transparent)]
    Set(#[from] set::Error),
    /// Parts could not be kept.
    #[error("{0}: {1}")]
    Keep(String, #[source] io::Error),
}

/// What baking makes.
pub struct Baked {
    /// The poses.
    pub set: PoseSet,
    /// A small WebP picture of the person at rest.
    pub display_picture: Vec<u8>,
    /// PSNR of the poses in the finest rung against what was drawn, in dB: mean and least.
    pub psnr: (f64, f64),
}

/// Most that a set may take, in bytes.
pub const LARGEST: usize = 600_000;
/// Most that a frame with moving lips may take on the mean, in bytes, up to 512 × 512 pixels, so that speech takes less than 170 kbit/s; more
/// pixels may take more.
const SPOKEN: usize = 735;
/// Pixels over which a moved part fades into the rest.
const FEATHER: usize = 12;
/// Differences of levels up to this are not worth a macroblock: a turned head changes the bloom of all that is bright.
const TOLERANCE: u8 = 2;
/// Quantiser of the display picture.
const DISPLAY_QUANTIZER: u32 = 14;

/// Names what is baked: renderer and encoder, person, size and plan. Equal fingerprints are equal sets.
///
/// # Panics
/// Never: all that is hashed is plain data.
#[must_use]
pub fn fingerprint(person: &Person, size: (usize, usize), plan: &Plan) -> String {
    let versions = (character::VERSION, env!("FACE_VERSION"));
    let all = serde_json::to_vec(&(versions, person, size, plan)).expect("plain data is JSON");
    Sha256::digest(&all).iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// Keeps drawn parts in a folder, so that baking can go on where it was stopped.
pub struct Parts(Option<PathBuf>);

impl Parts {
    /// In this folder, which is made where it is missing; `None` keeps nothing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(folder: Option<&Path>) -> Result<Self, Error> {
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(|e| Error::Keep(folder.display().to_string(), e))?;
        }
        Ok(Self(folder.map(Path::to_owned)))
    }

    /// The part of this name: kept, else drawn and kept.
    fn part(&self, name: &str, rect: Rect, draw: impl FnOnce() -> Patch) -> Result<Patch, Error> {
        let Some(folder) = &self.0 else { return Ok(draw()) };
        let path = folder.join(name);
        if let Some(patch) = fs::read(&path).ok().and_then(|bytes| Patch::from_bytes(rect, &bytes)) {
            return Ok(patch);
        }
        let patch = draw();
        // Whole or not at all.
        let fresh = path.with_extension("new");
        fs::write(&fresh, patch.to_bytes())
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|e| Error::Keep(path.display().to_string(), e))?;
        Ok(patch)
    }
}

/// Draws and encodes a person. `progress` is told what is done, 0 … 1.
///
/// # Errors
/// See [`Error`].
pub fn bake(
    person: &Person,
    size: (usize, usize),
    plan: &Plan,
    parts: &Parts,
    progress: impl FnMut(f64),
) -> Result<Baked, Error> {
    let drawn = Drawn::new(person, size, plan, parts, progress)?;
    let rest = drawn.rest_picture();
    let mut last = None;
    for &quantizer in &plan.quantizers {
        let (set, psnr) = encode(person, size, plan, &drawn, quantizer)?;
        let pixels = (size.0 * size.1).max(512 * 512);
        let small = set.to_file().len() <= LARGEST && spoken(&set) * 512 * 512 <= SPOKEN * pixels;
        last = Some(Baked { set, display_picture: Vec::new(), psnr });
        if small {
            break;
        }
    }
    let baked = last.ok_or(set::Error::Damaged("no quantiser"))?;
    Ok(Baked { display_picture: webp::encode(&half(rest), DISPLAY_QUANTIZER)?, ..baked })
}

/// Mean length of a frame while speaking in the finest rung, in bytes: a quarter of the time not with the resting look.
fn spoken(set: &PoseSet) -> usize {
    let mean = |resting: bool| {
        let lips =
            set.manifest().frames.iter().filter(|(key, _)| key.mouth != 0 && (key.look == 0) == resting);
        let (count, sum) = lips.fold((0, 0), |(n, sum), (_, lengths)| (n + 1, sum + lengths[0] as usize));
        sum / count.max(1)
    };
    (mean(true) * 3 + mean(false)) / 4
}

/// What one pose looks like, drawn afresh: for proofs.
///
/// # Errors
/// If the character is out of range.
///
/// # Panics
/// If the plan has no such pose.
pub fn redraw(person: &Person, size: (usize, usize), plan: &Plan, key: Key) -> Result<I420, Error> {
    let sitter = Sitter::new(&person.character)?;
    let stance = plan.stances[usize::from(key.stance)];
    let base = pose(&person.rest, stance, Look::default());
    let stage = sitter.stage(&base, size);
    let mut whole = stage.draw(&base, Rect::whole(size.0, size.1));
    let look = pose(&person.rest, stance, plan.looks[usize::from(key.look)]);
    for (rect, moved) in [
        (stage.mouth_rect(), Pose { mouth: plan.mouths[usize::from(key.mouth)], ..base }),
        (stage.eyes_rect(), look),
    ] {
        whole.add_change(&stage.draw(&base, rect), &stage.draw(&moved, rect), FEATHER);
    }
    let rgb = whole.finish().rgb();
    let chest = chest(&sitter.stage(&person.rest, size));
    Ok(I420::from_rgb(&chest.lift(rgb, size, plan.breaths[usize::from(key.breath)]), size.0, size.1))
}

fn chest(rest: &Stage<'_>) -> Chest {
    Chest::below(rest.eyes_rect(), rest.mouth_rect())
}

/// A part of the picture, as it is while something moves in it.
struct Moved {
    rect: Rect,
    /// What it adds to the levels of the picture at rest, for each pixel of the part red, green and blue.
    change: Vec<i16>,
}

impl Moved {
    /// `whole` and `before` in linear light. Bloom spills a little over the part's border; that is left out, so that nothing else changes.
    fn new(whole: &Patch, still: &Picture, before: &Patch, moved: &Patch) -> Self {
        let rect = moved.rect();
        let mut all = whole.clone();
        all.add_change(before, moved, FEATHER);
        let now = all.finish();
        let mut change = Vec::with_capacity((rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 3);
        for y in rect.y0..rect.y1 {
            for x in rect.x0..rect.x1 {
                let i = (y * still.width + x) * 4;
                change.extend((i..i + 3).map(|i| i16::from(now.rgba[i]) - i16::from(still.rgba[i])));
            }
        }
        Self { rect, change }
    }

    fn add_to(&self, rgb: &mut [u8], width: usize) {
        let r = self.rect;
        let row = (r.x1 - r.x0) * 3;
        for (y, change) in (r.y0..r.y1).zip(self.change.chunks_exact(row)) {
            let at = (y * width + r.x0) * 3;
            for (level, change) in rgb[at..at + row].iter_mut().zip(change) {
                *level = (i16::from(*level) + change).clamp(0, 255) as u8;
            }
        }
    }
}

/// All parts of all pictures: for each stance the picture at rest, its looks, and the mouths of the first.
struct Drawn {
    stances: Vec<(Picture, Vec<(u8, Moved)>)>,
    mouths: Vec<Moved>,
    chest: Chest,
}

impl Drawn {
    fn new(
        person: &Person,
        size: (usize, usize),
        plan: &Plan,
        parts: &Parts,
        mut progress: impl FnMut(f64),
    ) -> Result<Self, Error> {
        let sitter = Sitter::new(&person.character)?;
        // A stance takes about as long as six mouths or eyes.
        let looks: usize =
            plan.looks.len() + plan.stance_looks.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>();
        let total = (plan.mouths.len() + looks + plan.stances.len() * 6) as f64;
        let mut done = 0.0;
        let mut step = |n: f64| {
            done += n;
            progress((done / total).min(1.0));
        };
        let chest = chest(&sitter.stage(&person.rest, size));
        let mut out = Self { stances: Vec::new(), mouths: Vec::new(), chest };
        for (h, stance) in plan.stances.iter().enumerate() {
            let base = pose(&person.rest, *stance, Look::default());
            let stage = sitter.stage(&base, size);
            let draw =
                |name: String, pose: &Pose, rect: Rect| parts.part(&name, rect, || stage.draw(pose, rect));
            let whole = draw(format!("stance{h}"), &base, Rect::whole(size.0, size.1))?;
            let still = whole.finish();
            step(6.0);
            let all: Vec<u8> = match h.checked_sub(1) {
                None => (0..plan.looks.len() as u8).collect(),
                Some(h) => plan.stance_looks.get(h).cloned().unwrap_or_default(),
            };
            let mut looks = Vec::new();
            if all.iter().any(|l| *l != 0) {
                let rect = stage.eyes_rect();
                let before = draw(format!("stance{h}-eyes"), &base, rect)?;
                for l in all.into_iter().filter(|l| *l != 0) {
                    let look = pose(&person.rest, *stance, plan.looks[usize::from(l)]);
                    let moved = draw(format!("stance{h}-look{l}"), &look, rect)?;
                    looks.push((l, Moved::new(&whole, &still, &before, &moved)));
                    step(1.0);
                }
            }
            if h == 0 {
                out.mouths = Self::mouths(&person.rest, plan, &stage, &whole, &still, draw, &mut step)?;
            }
            out.stances.push((still, looks));
        }
        progress(1.0);
        Ok(out)
    }

    fn mouths(
        rest: &Pose,
        plan: &Plan,
        stage: &Stage<'_>,
        whole: &Patch,
        still: &Picture,
        draw: impl Fn(String, &Pose, Rect) -> Result<Patch, Error>,
        step: &mut impl FnMut(f64),
    ) -> Result<Vec<Moved>, Error> {
        let rect = stage.mouth_rect();
        let before = draw("mouth".into(), rest, rect)?;
        let mut mouths = Vec::new();
        for (m, mouth) in plan.mouths.iter().enumerate() {
            let moved = draw(format!("mouth{m}"), &Pose { mouth: *mouth, ..*rest }, rect)?;
            mouths.push(Moved::new(whole, still, &before, &moved));
            step(1.0);
        }
        Ok(mouths)
    }

    fn rest_picture(&self) -> &Picture {
        &self.stances[0].0
    }

    fn picture(&self, key: Key, breath: f32) -> I420 {
        let still = &self.stances[usize::from(key.stance)].0;
        let size = (still.width, still.height);
        I420::from_rgb(&self.chest.lift(self.with(key), size, breath), size.0, size.1)
    }

    /// A pose's picture but for the breath, RGB.
    fn with(&self, key: Key) -> Vec<u8> {
        let (still, looks) = &self.stances[usize::from(key.stance)];
        let mut rgb = still.rgb();
        if let Some((_, look)) = looks.iter().find(|(l, _)| *l == key.look) {
            look.add_to(&mut rgb, still.width);
        }
        if key.mouth != 0 {
            self.mouths[usize::from(key.mouth)].add_to(&mut rgb, still.width);
        }
        rgb
    }
}

/// Smiling narrows the eyes by this much: a smile without them is a mask's.
const SMILING_EYES: f32 = 0.25;

/// Rest, with a stance and a look relative to it. The eyes hold on to the user while the head moves.
#[must_use]
pub fn pose(rest: &Pose, stance: Stance, look: Look) -> Pose {
    let Stance { head, smile } = stance;
    let mut pose = *rest;
    // As far as there is room above the smile at rest.
    pose.smile += smile * (1.0 - rest.smile);
    pose.eyes.squint = (pose.eyes.squint + smile * SMILING_EYES).min(1.0);
    pose.head.yaw += head.yaw;
    pose.head.pitch += head.pitch;
    pose.head.roll += head.roll;
    pose.eyes.lids += look.eyes.lids;
    pose.eyes.squint += look.eyes.squint;
    pose.eyes.gaze_x += look.eyes.gaze_x - head.yaw / 0.45;
    pose.eyes.gaze_y += look.eyes.gaze_y + head.pitch / 0.35;
    pose.brows.raise += look.brows.raise;
    pose.brows.knit += look.brows.knit;
    pose
}

fn encode(
    person: &Person,
    (width, height): (usize, usize),
    plan: &Plan,
    drawn: &Drawn,
    quantizer: u32,
) -> Result<(PoseSet, (f64, f64)), Error> {
    let rest = to_i420(drawn.rest_picture());
    let mut encoder = Encoder::new(width, height)?;
    let key = encoder.key(&rest, plan.key_quantizer)?;
    let mut decoder = Decoder::new(width, height)?;
    decoder.decode(&key)?;
    let keys = plan.keys();
    let anchored = |key: &Key| plan.anchored.contains(&key.stance);
    let (lean, anchor) = match plan.anchored.first() {
        None => (rest.clone(), Vec::new()),
        Some(&stance) => {
            let lean = to_i420(&drawn.stances[usize::from(stance)].0);
            let changed = lean.changed_blocks(&rest, TOLERANCE);
            let anchor = encoder.anchor(&lean, plan.anchor_quantizer, &changed)?;
            decoder.decode(&anchor)?;
            (lean, anchor)
        }
    };
    let coarser = |by: &u32| (quantizer + by).min(vp8::MAX_QUANTIZER);
    let passing = |key: &Key| if plan.passing.0.contains(&key.stance) { plan.passing.1 } else { 0 };
    let quantizers: Vec<u32> = std::iter::once(quantizer).chain(plan.coarser.iter().map(coarser)).collect();
    let mut frames = Vec::with_capacity(keys.len() * quantizers.len());
    let (mut sum, mut least) = (0.0, f64::MAX);
    for key in &keys {
        let picture = drawn.picture(*key, plan.breaths[usize::from(key.breath)]);
        let changed = picture.changed_blocks(if anchored(key) { &lean } else { &rest }, TOLERANCE);
        // Lips are what costs: only they get coarser until all fits.
        let finer = if key.mouth == 0 { quantizer - plan.quantizers[0] } else { 0 };
        for (rung, quantizer) in quantizers.iter().enumerate() {
            let quantizer = (quantizer - finer + passing(key)).min(vp8::MAX_QUANTIZER);
            let frame = if anchored(key) {
                encoder.anchored_pose(&picture, quantizer, &changed)?
            } else {
                encoder.pose(&picture, quantizer, &changed)?
            };
            if rung == 0 {
                let psnr = decoder.decode(&frame)?.psnr(&picture);
                (sum, least) = (sum + psnr, least.min(psnr));
            }
            frames.push(Bytes::from(frame));
        }
    }
    let manifest = Manifest {
        id: person.id.clone(),
        name: person.name.clone(),
        gender: person.gender.word().into(),
        voice: person.voice.clone(),
        width: width as u32,
        height: height as u32,
        quantizers: std::iter::once(plan.key_quantizer).chain(quantizers).collect(),
        anchored: plan.anchored.clone(),
        stances: plan.stances.clone(),
        looks: plan.looks.clone(),
        mouths: plan.mouths.clone(),
        breaths: plan.breaths.clone(),
        frames: keys.iter().map(|key| (*key, Vec::new())).collect(),
        key_length: 0,
        anchor_length: 0,
    };
    Ok((PoseSet::new(manifest, key.into(), anchor.into(), frames)?, (sum / keys.len() as f64, least)))
}

fn to_i420(picture: &Picture) -> I420 {
    I420::from_rgb(&picture.rgb(), picture.width, picture.height)
}

/// Half the size in both directions, by the mean of four pixels; even, as VP8 wants it.
fn half(picture: &Picture) -> Picture {
    let (width, height) = (picture.width / 4 * 2, picture.height / 4 * 2);
    let at = |x: usize, y: usize, k: usize| u32::from(picture.rgba[(y * picture.width + x) * 4 + k]);
    let rgba = (0..width * height * 4)
        .map(|i| {
            let (x, y, k) = (i / 4 % width * 2, i / 4 / width * 2, i % 4);
            ((at(x, y, k) + at(x + 1, y, k) + at(x, y + 1, k) + at(x + 1, y + 1, k) + 2) / 4) as u8
        })
        .collect();
    Picture { width, height, rgba }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::people;

    #[test]
    fn a_mouth_changes_no_level_outside_of_its_rectangle() {
        let person = people::find("clara").unwrap();
        let size = (96, 96);
        let plan = Plan {
            stances: vec![Stance::default()],
            stance_looks: Vec::new(),
            breathing: Vec::new(),
            anchored: Vec::new(),
            ..Plan::new()
        };
        let plan = Plan {
            looks: plan.looks[..1].to_vec(),
            mouths: plan.mouths[14..17].to_vec(),
            talking: 1,
            ..plan
        };
        let drawn = Drawn::new(&person, size, &plan, &Parts(None), |_| ()).unwrap();
        let rect = drawn.mouths[1].rect;
        let still = drawn.rest_picture();
        let open = drawn.with(Key { mouth: 1, ..Key::default() });
        let (mut inside, mut outside) = (0, 0);
        for (i, (a, b)) in open.iter().zip(still.rgb()).enumerate().filter(|(_, (a, b))| **a != *b) {
            let (x, y) = (i / 3 % size.0, i / 3 / size.0);
            let within = (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y);
            *(if within { &mut inside } else { &mut outside }) += usize::from(a.abs_diff(b) > 0);
        }
        assert!(inside > 100 && outside == 0, "{inside} inside, {outside} outside");
    }
}
