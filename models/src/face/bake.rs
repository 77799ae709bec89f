//! From a person to a pose set: draws every part once, puts the parts together, encodes every combination. What is needed soonest is drawn
//! first, so that a set of that alone can be shown while the rest is drawn.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use character::{OutOfRange, Patch, Picture, Pose, Rect, Sitter};
use sha2::{Digest, Sha256};

use super::drawn::{Drawn, FEATHER, chest};
use super::people::Person;
use super::picture::I420;
use super::set::{self, Key, Look, PoseSet, Stance};
use super::{frames, vp8, webp};

pub use super::plan::{Plan, Share};

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
    /// The same of the worse of the two planes of colour.
    pub colours: (f64, f64),
}

/// Most that a set may take, in bytes.
pub const LARGEST: usize = 600_000;
/// Most that a frame with moving lips may take on the mean, in bytes, up to 512 × 512 pixels, so that speech takes less than 170 kbit/s; more
/// pixels may take more.
pub(super) const SPOKEN: usize = 735;
/// Parts of the whole time that the last encoding takes, and that of a share.
const ENCODING: f64 = 0.2;
const ENCODING_SHARE: f64 = 0.05;
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
    pub(super) fn part(&self, name: &str, rect: Rect, draw: impl FnOnce() -> Patch) -> Result<Patch, Error> {
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
    mut progress: impl FnMut(f64) + Send,
) -> Result<Baked, Error> {
    bake_by_shares(person, size, plan, &[], parts, |news| {
        if let News::Progress(done) = news {
            progress(done);
        }
    })
}

/// What is told while a person is baked.
pub enum News {
    /// So much is done, 0 … 1.
    Progress(f64),
    /// A share is drawn: a set by itself, with the same key and anchor as the whole.
    Share(Box<Baked>),
}

/// As [`bake`], and what is baked is the same; these shares of the plan are drawn first, one after the other, and told.
///
/// # Errors
/// See [`Error`].
pub fn bake_by_shares(
    person: &Person,
    size: (usize, usize),
    plan: &Plan,
    shares: &[Share],
    parts: &Parts,
    tell: impl FnMut(News) + Send,
) -> Result<Baked, Error> {
    let sitter = Sitter::new(&person.character)?;
    let mut drawn = Drawn::new(&sitter, person, size, plan, parts)?;
    let told = Mutex::new((tell, 0.0_f64));
    let tell = |news: News| {
        let (tell, far) = &mut *told.lock().unwrap_or_else(PoisonError::into_inner);
        tell(match news {
            // Threads that encode overtake each other.
            News::Progress(done) => {
                *far = far.max(done);
                News::Progress(*far)
            }
            share => share,
        });
    };
    let drawing = 1.0 - ENCODING - ENCODING_SHARE * shares.len() as f64;
    // Encoding takes its time: a share begins where the one before was small enough.
    let mut from = 0;
    for (at, share) in shares.iter().enumerate() {
        let before = ENCODING_SHARE * at as f64;
        let mut far = 0.0;
        drawn.draw(share, &mut |done| {
            far = before + done * drawing;
            tell(News::Progress(far));
        })?;
        let told = |done| tell(News::Progress(far + done * ENCODING_SHARE));
        let baked;
        (baked, from) = encode(person, size, plan, share, &drawn, from, &told)?;
        tell(News::Share(Box::new(baked)));
    }
    let all = Share::of_all(plan);
    let before = ENCODING_SHARE * shares.len() as f64;
    drawn.draw(&all, &mut |done| tell(News::Progress(before + done * drawing)))?;
    let told = |done| tell(News::Progress(1.0 - ENCODING * (1.0 - done)));
    let baked = encode(person, size, plan, &all, &drawn, 0, &told)?.0;
    tell(News::Progress(1.0));
    Ok(baked)
}

/// As [`frames::encode_small`], with the display picture.
fn encode(
    person: &Person,
    size: (usize, usize),
    plan: &Plan,
    share: &Share,
    drawn: &Drawn<'_>,
    from: usize,
    told: &(dyn Fn(f64) + Sync),
) -> Result<(Baked, usize), Error> {
    let (baked, at) = frames::encode_small(person, size, plan, share, drawn, from, told)?;
    let display_picture = webp::encode(&half(drawn.rest_picture()), DISPLAY_QUANTIZER)?;
    Ok((Baked { display_picture, ..baked }, at))
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
