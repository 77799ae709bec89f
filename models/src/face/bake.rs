//! From a person to a pose set: draws every part once, puts the parts together, encodes every combination.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Bytes;
use character::{Brows, Eyes, Head, Mouth, OutOfRange, Patch, Picture, Pose, Rect, Sitter, Stage};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::people::Person;
use super::picture::I420;
use super::set::{self, Key, Look, Manifest, PoseSet};
use super::vp8::{self, Decoder, Encoder};
use super::webp;

/// Which poses are drawn, relative to rest.
#[derive(Serialize)]
pub struct Plan {
    /// Head poses, rest first.
    pub heads: Vec<Head>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// How many of the looks, from the first on, are baked with every mouth.
    pub talking: usize,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// For each head but the first the looks that it is baked with.
    pub head_looks: Vec<Vec<u8>>,
    /// Quantiser of the key.
    pub key_quantizer: u32,
    /// Quantisers of the poses, finest first: the first with which the set is small enough is taken.
    pub quantizers: Vec<u32>,
}

impl Plan {
    /// The poses that [`crate::face`]'s users (blinks, glances, a thinker's look away, a listener's lean and nod) ask for.
    #[must_use]
    pub fn new() -> Self {
        let look = |lids, gaze_x, gaze_y, raise| Look {
            eyes: Eyes { lids, gaze_x, gaze_y, squint: 0.0 },
            brows: Brows { raise, knit: 0.0 },
        };
        let lean = |k: f32, nod: f32| Head { yaw: 0.025 * k, pitch: 0.012 * k + nod, roll: 0.038 * k };
        Self {
            heads: vec![
                Head::default(),
                lean(0.25, 0.0),
                lean(0.5, 0.0),
                lean(0.75, 0.0),
                lean(1.0, 0.0),
                lean(1.0, 0.017),
                lean(1.0, 0.034),
                lean(1.0, 0.050),
            ],
            head_looks: vec![vec![0], vec![0], vec![0], vec![0, 1, 2, 3, 4, 5], vec![0], vec![0], vec![0]],
            looks: vec![
                look(0.0, 0.0, 0.0, 0.0),
                look(0.55, 0.0, 0.0, 0.0),
                look(1.0, 0.0, 0.0, 0.0),
                look(0.25, 0.0, 0.0, 0.0),
                look(0.0, -0.4, -0.05, 0.0),
                look(0.0, 0.4, -0.05, 0.0),
                look(0.0, 0.0, 0.0, 0.5),
                look(0.0, 0.55, 0.5, 0.4),
                look(0.55, 0.55, 0.5, 0.4),
                look(1.0, 0.0, 0.0, 0.4),
            ],
            talking: 7,
            mouths: mouths(),
            key_quantizer: 8,
            quantizers: vec![30, 34, 38, 42, 48, 54],
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

/// The mouths of speech: closures, then openings by shape.
fn mouths() -> Vec<Mouth> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    let mut all = vec![
        Mouth::default(),
        Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
        Mouth { press: 1.0, ..m(0.04, -0.2, 0.7, 0.0) },
        Mouth { press: 0.5, ..m(0.14, 0.1, 0.05, 0.0) },
        Mouth { press: 0.5, ..m(0.12, -0.2, 0.6, 0.0) },
        Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.05, 0.0) },
        Mouth { tuck: 0.5, ..m(0.26, 0.1, 0.05, 0.0) },
        m(0.28, 0.1, 0.0, 1.0),
        m(0.18, 0.2, 0.0, 0.55),
        m(0.34, 0.2, 0.0, 0.55),
    ];
    all.extend([0.08, 0.17, 0.28, 0.40, 0.54, 0.70, 0.88].map(|jaw| m(jaw, 0.1, 0.05, 0.1)));
    all.extend([0.08, 0.17, 0.28, 0.42].map(|jaw| m(jaw, 0.55, 0.0, 0.15)));
    all.extend([0.10, 0.20, 0.30, 0.42, 0.56, 0.70].map(|jaw| m(jaw, -0.15, 0.45, 0.1)));
    all.extend([0.10, 0.20, 0.30, 0.44].map(|jaw| m(jaw, -0.25, 0.9, 0.0)));
    all
}

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
    /// Quantiser of the poses.
    pub quantizer: u32,
    /// PSNR of the poses against what was drawn, in dB: mean and least.
    pub psnr: (f64, f64),
}

/// Most that a set may take, in bytes.
pub const LARGEST: usize = 600_000;
/// Pixels over which a moved part fades into the rest.
const FEATHER: usize = 12;
/// Differences of levels up to this are not worth a macroblock: a turned head changes the bloom of all that is bright.
const TOLERANCE: u8 = 2;
/// Quantiser of the display picture.
const DISPLAY_QUANTIZER: u32 = 14;

/// Names what is baked: renderer, person, size and plan. Equal fingerprints are equal sets.
///
/// # Panics
/// Never: all that is hashed is plain data.
#[must_use]
pub fn fingerprint(person: &Person, size: (usize, usize), plan: &Plan) -> String {
    let all = serde_json::to_vec(&(character::VERSION, person, size, plan)).expect("plain data is JSON");
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
        let small = set.to_file().len() <= LARGEST;
        last = Some(Baked { set, display_picture: Vec::new(), quantizer, psnr });
        if small {
            break;
        }
    }
    let baked = last.ok_or(set::Error::Damaged("no quantiser"))?;
    Ok(Baked { display_picture: webp::encode(&half(rest), DISPLAY_QUANTIZER)?, ..baked })
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
    let head = plan.heads[usize::from(key.head)];
    let base = pose(&person.rest, head, Look::default());
    let stage = sitter.stage(&base, size);
    let mut whole = stage.draw(&base, Rect::whole(size.0, size.1));
    let look = pose(&person.rest, head, plan.looks[usize::from(key.look)]);
    for (rect, moved) in [
        (stage.mouth_rect(), Pose { mouth: plan.mouths[usize::from(key.mouth)], ..base }),
        (stage.eyes_rect(), look),
    ] {
        whole.add_change(&stage.draw(&base, rect), &stage.draw(&moved, rect), FEATHER);
    }
    Ok(to_i420(&whole.finish()))
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

/// All parts of all pictures: for each head the picture at rest, its looks, and the mouths of the first.
struct Drawn {
    heads: Vec<(Picture, Vec<(u8, Moved)>)>,
    mouths: Vec<Moved>,
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
        // A head takes about as long as six mouths or eyes.
        let looks: usize =
            plan.looks.len() + plan.head_looks.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>();
        let total = (plan.mouths.len() + looks + plan.heads.len() * 6) as f64;
        let mut done = 0.0;
        let mut step = |n: f64| {
            done += n;
            progress((done / total).min(1.0));
        };
        let mut out = Self { heads: Vec::new(), mouths: Vec::new() };
        for (h, head) in plan.heads.iter().enumerate() {
            let base = pose(&person.rest, *head, Look::default());
            let stage = sitter.stage(&base, size);
            let draw =
                |name: String, pose: &Pose, rect: Rect| parts.part(&name, rect, || stage.draw(pose, rect));
            let whole = draw(format!("head{h}"), &base, Rect::whole(size.0, size.1))?;
            let still = whole.finish();
            step(6.0);
            let all: Vec<u8> = match h.checked_sub(1) {
                None => (0..plan.looks.len() as u8).collect(),
                Some(h) => plan.head_looks.get(h).cloned().unwrap_or_default(),
            };
            let mut looks = Vec::new();
            if all.iter().any(|l| *l != 0) {
                let rect = stage.eyes_rect();
                let before = draw(format!("head{h}-eyes"), &base, rect)?;
                for l in all.into_iter().filter(|l| *l != 0) {
                    let look = pose(&person.rest, *head, plan.looks[usize::from(l)]);
                    let moved = draw(format!("head{h}-look{l}"), &look, rect)?;
                    looks.push((l, Moved::new(&whole, &still, &before, &moved)));
                    step(1.0);
                }
            }
            if h == 0 {
                out.mouths = Self::mouths(&person.rest, plan, &stage, &whole, &still, draw, &mut step)?;
            }
            out.heads.push((still, looks));
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
        &self.heads[0].0
    }

    /// Which poses are baked.
    fn keys(&self, plan: &Plan) -> Vec<Key> {
        let mut keys = Vec::new();
        for look in 0..plan.looks.len() {
            let mouths = if look < plan.talking { plan.mouths.len() } else { 1 };
            keys.extend((0..mouths).map(|mouth| Key { head: 0, look: look as u8, mouth: mouth as u8 }));
        }
        for (head, looks) in plan.head_looks.iter().enumerate().take(self.heads.len() - 1) {
            keys.extend(looks.iter().map(|look| Key { head: head as u8 + 1, look: *look, mouth: 0 }));
        }
        keys
    }

    fn picture(&self, key: Key) -> I420 {
        let still = &self.heads[usize::from(key.head)].0;
        I420::from_rgb(&self.with(key), still.width, still.height)
    }

    /// A pose's picture, RGB.
    fn with(&self, key: Key) -> Vec<u8> {
        let (still, looks) = &self.heads[usize::from(key.head)];
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

/// Rest, with a head and a look relative to it. The eyes hold on to the user while the head moves.
#[must_use]
pub fn pose(rest: &Pose, head: Head, look: Look) -> Pose {
    let mut pose = *rest;
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
    let keys = drawn.keys(plan);
    let mut frames = Vec::with_capacity(keys.len());
    let (mut sum, mut least) = (0.0, f64::MAX);
    for key in &keys {
        let picture = drawn.picture(*key);
        let frame = encoder.pose(&picture, quantizer, &picture.changed_blocks(&rest, TOLERANCE))?;
        let psnr = decoder.decode(&frame)?.psnr(&picture);
        (sum, least) = (sum + psnr, least.min(psnr));
        frames.push(Bytes::from(frame));
    }
    let manifest = Manifest {
        id: person.id.clone(),
        name: person.name.clone(),
        gender: person.gender.word().into(),
        voice: person.voice.clone(),
        width: width as u32,
        height: height as u32,
        quantizers: [plan.key_quantizer, quantizer],
        heads: plan.heads.clone(),
        looks: plan.looks.clone(),
        mouths: plan.mouths.clone(),
        frames: keys.iter().map(|key| (*key, 0)).collect(),
        key_length: 0,
    };
    Ok((PoseSet::new(manifest, key.into(), frames)?, (sum / keys.len() as f64, least)))
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
        let plan = Plan { heads: vec![Head::default()], head_looks: Vec::new(), ..Plan::new() };
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
