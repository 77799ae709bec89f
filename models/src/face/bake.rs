//! Bakes an avatar into a pose set: draws every part once, composes the parts, and encodes every
//! combination. The parts that are needed soonest are drawn first. A set of these alone can be
//! shown while the rest is drawn.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use character::{CharacterRenderer, OutOfRange, Patch, Picture, Pose, Rect};
use photo::{Photo, PhotoRenderer};
use sha2::{Digest, Sha256};

use super::avatar_renderer::{AvatarRenderer, FEATHER};
use super::avatar_source::{AvatarSource, Identity, Subject};
use super::avatar_spec::AvatarSpec;
use super::background::BackgroundError;
use super::character_avatar::{CharacterAvatar, locate_chest};
use super::manifest::{Look, PoseId, Stance};
use super::photo_avatar::{PhotoAvatar, PhotoAvatarRenderer};
use super::picture::I420;
use super::pose_plan::LARGE_PICTURE_PIXELS;
use super::pose_set::{self, PoseSet};
use super::rasterize::Rasterizer;
use super::{lip_quantizer, vp8, webp};

pub use super::plan_subset::PlanSubset;
pub use super::pose_plan::PosePlan;

/// Error of baking.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The character is out of range.
    #[error(transparent)]
    Character(#[from] OutOfRange),
    /// The photo or its landmarks cannot be used.
    #[error(transparent)]
    Photo(#[from] photo::Error),
    /// The photo has another size than the pose set.
    #[error("the photo has {0}×{1} pixels, but the pose set has {2}×{3}")]
    PhotoSize(usize, usize, usize, usize),
    /// The background cannot be replaced, because it is unknown where the person is.
    #[error("the photo has no mask of the person, so its background cannot be replaced")]
    NoMask,
    /// The background cannot be used.
    #[error("the background cannot be used: {0}")]
    Background(#[from] BackgroundError),
    /// Error of the encoder.
    #[error(transparent)]
    Vp8(#[from] vp8::Error),
    /// The set is inconsistent.
    #[error(transparent)]
    Set(#[from] pose_set::Error),
    /// Drawn parts could not be stored.
    #[error("{0}: {1}")]
    Cache(String, #[source] io::Error),
}

/// Result of baking.
pub struct BakeOutput {
    /// The pose set.
    pub pose_set: PoseSet,
    /// A small WebP picture of the avatar at rest.
    pub display_picture: Vec<u8>,
    /// Luma PSNR of a fourth of the poses, in the finest quality level, against the drawn pictures,
    /// in dB: mean and minimum.
    pub luma_psnr: (f64, f64),
    /// As `luma_psnr`, for the worse of the two chroma planes.
    pub chroma_psnr: (f64, f64),
}

/// Version of the plan and of the drawing. It increases with each change after which the avatars
/// that were baked before must be baked again: their sets have a smaller one
/// ([`PoseSet::plan_version`]).
pub const PLAN_VERSION: u32 = 3;
/// Maximum size of a set of up to 512 × 512 pixels, in bytes.
const MAX_SET_BYTES: usize = 1_000_000;
/// Maximum mean size of a frame with moving lips, in bytes, up to 512 × 512 pixels. Speech then
/// takes less than 200 kbit/s. More pixels may take proportionally more.
pub(super) const MAX_SPEECH_FRAME_BYTES: usize = 845;

/// Maximum size of a set of pictures of this width and height, in bytes.
#[must_use]
pub fn max_set_bytes(size: (usize, usize)) -> usize {
    scale_to(size, MAX_SET_BYTES)
}

/// Scales a limit for pictures of [`LARGE_PICTURE_PIXELS`] to larger ones.
pub(super) fn scale_to((width, height): (usize, usize), limit: usize) -> usize {
    limit * (width * height).max(LARGE_PICTURE_PIXELS) / LARGE_PICTURE_PIXELS
}

/// Fractions of the total time for the final encoding, and for that of each subset.
const FINAL_ENCODING_FRACTION: f64 = 0.2;
const SUBSET_ENCODING_FRACTION: f64 = 0.05;
/// Quantizer of the display picture.
const DISPLAY_QUANTIZER: u32 = 14;

/// Identifies the result of a bake: versions of renderer and encoder, avatar, size, framing and
/// plan. Equal fingerprints mean equal sets.
///
/// # Panics
/// Never: the hashed values are plain data.
#[must_use]
#[expect(clippy::expect_used, reason = "plain data serializes")]
pub fn fingerprint<'a>(
    avatar: impl Into<AvatarSource<'a>>,
    size: (usize, usize),
    plan: &PosePlan,
) -> String {
    let source @ AvatarSource { subject, background, framing } = avatar.into();
    let all = match subject {
        Subject::Character(avatar) => {
            let versions = (character::VERSION, env!("FACE_VERSION"));
            serde_json::to_vec(&(versions, avatar, size, framing, plan, background))
        }
        Subject::Photo(avatar) => {
            let versions = (photo::VERSION, env!("FACE_VERSION"));
            let photo = Sha256::digest(&avatar.photo.rgb).to_vec();
            let of_photo = (photo, &avatar.landmarks, &avatar.mask);
            serde_json::to_vec(&(versions, source.identity(), of_photo, size, plan, background))
        }
    };
    let all = all.expect("the fingerprint serializes to JSON");
    Sha256::digest(&all).iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// Stores drawn parts in a folder, so that an interrupted bake can continue.
pub struct PatchCache(Option<PathBuf>);

impl PatchCache {
    /// A cache in this folder, which is created if it is missing. `None` stores nothing.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(folder: Option<&Path>) -> Result<Self, Error> {
        if let Some(folder) = folder {
            fs::create_dir_all(folder)
                .map_err(|e| Error::Cache(folder.display().to_string(), e))?;
        }
        Ok(Self(folder.map(Path::to_owned)))
    }

    /// The part of this name: from the cache, or else drawn and stored.
    pub(super) fn get_or_draw(
        &self,
        name: &str,
        rect: Rect,
        draw: impl FnOnce() -> Patch,
    ) -> Result<Patch, Error> {
        let Some(folder) = &self.0 else { return Ok(draw()) };
        let path = folder.join(name);
        if let Some(patch) = fs::read(&path).ok().and_then(|bytes| Patch::from_bytes(rect, &bytes))
        {
            return Ok(patch);
        }
        let patch = draw();
        // The rename makes the file complete or absent.
        let fresh = path.with_extension("new");
        fs::write(&fresh, patch.to_bytes())
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|e| Error::Cache(path.display().to_string(), e))?;
        Ok(patch)
    }
}

/// Draws and encodes an avatar. `progress` receives the completed fraction, 0 … 1.
///
/// # Errors
/// See [`Error`].
pub fn bake<'a>(
    avatar: impl Into<AvatarSource<'a>>,
    size: (usize, usize),
    plan: &PosePlan,
    cache: &PatchCache,
    mut progress: impl FnMut(f64) + Send,
) -> Result<BakeOutput, Error> {
    bake_progressively(avatar, size, plan, &[], cache, |event| {
        if let BakeEvent::Progress(done) = event {
            progress(done);
        }
    })
}

/// Event of a bake in progress.
pub enum BakeEvent {
    /// Completed fraction, 0 … 1.
    Progress(f64),
    /// A subset is drawn: a complete set with the key frame and anchors of the full set.
    PartialSet(Box<BakeOutput>),
}

/// As [`bake`], with the same result. These subsets of the plan are drawn first, one after the
/// other, and reported.
///
/// # Errors
/// See [`Error`].
pub fn bake_progressively<'a>(
    avatar: impl Into<AvatarSource<'a>>,
    size: (usize, usize),
    plan: &PosePlan,
    subsets: &[PlanSubset],
    cache: &PatchCache,
    on_event: impl FnMut(BakeEvent) + Send,
) -> Result<BakeOutput, Error> {
    let source @ AvatarSource { subject, background, framing } = avatar.into();
    let renderer: Box<dyn AvatarRenderer + '_> = match subject {
        Subject::Character(avatar) => {
            Box::new(CharacterAvatar::new(avatar, size, cache)?.with_framing(framing))
        }
        Subject::Photo(avatar) => Box::new(PhotoAvatarRenderer::new(
            photo_renderer(avatar, size)?,
            avatar.mask.as_deref(),
        )),
    };
    let mut rasterizer = Rasterizer::new(&*renderer, background, plan)?;
    let avatar = source.identity();
    let reporter = Mutex::new((on_event, 0.0_f64));
    let on_event = |event: BakeEvent| {
        let (on_event, reached) = &mut *reporter.lock().unwrap_or_else(PoisonError::into_inner);
        on_event(match event {
            // Encoding threads overtake each other, so progress is limited to increase.
            BakeEvent::Progress(done) => {
                *reached = reached.max(done);
                BakeEvent::Progress(*reached)
            }
            subset => subset,
        });
    };
    let drawing = 1.0 - FINAL_ENCODING_FRACTION - SUBSET_ENCODING_FRACTION * subsets.len() as f64;
    // Encoding takes time, so it starts with the quantizer of a sample, and a subset also with the
    // one at which the previous one was small enough.
    let sampled = |rasterizer: &Rasterizer<'_>, subset: &PlanSubset| {
        lip_quantizer::sample_quantizer(avatar, size, plan, subset, rasterizer)
    };
    let mut from = 0;
    for (at, subset) in subsets.iter().enumerate() {
        let before = SUBSET_ENCODING_FRACTION * at as f64;
        let mut reached = 0.0;
        rasterizer.draw(subset, &mut |done| {
            reached = before + done * drawing;
            on_event(BakeEvent::Progress(reached));
        })?;
        let reporter =
            |done| on_event(BakeEvent::Progress(reached + done * SUBSET_ENCODING_FRACTION));
        from = from.max(sampled(&rasterizer, subset)?);
        let baked;
        (baked, from) = encode(avatar, size, plan, subset, &rasterizer, from, &reporter)?;
        on_event(BakeEvent::PartialSet(Box::new(baked)));
    }
    let all = PlanSubset::full(plan);
    let before = SUBSET_ENCODING_FRACTION * subsets.len() as f64;
    rasterizer.draw(&all, &mut |done| on_event(BakeEvent::Progress(before + done * drawing)))?;
    let reporter =
        |done| on_event(BakeEvent::Progress(1.0 - FINAL_ENCODING_FRACTION * (1.0 - done)));
    let from = sampled(&rasterizer, &all)?;
    let baked = encode(avatar, size, plan, &all, &rasterizer, from, &reporter)?.0;
    on_event(BakeEvent::Progress(1.0));
    Ok(baked)
}

fn photo_renderer(
    avatar: &PhotoAvatar,
    (width, height): (usize, usize),
) -> Result<PhotoRenderer, Error> {
    let Photo { width: w, height: h, .. } = avatar.photo;
    if (w, h) != (width, height) {
        return Err(Error::PhotoSize(w, h, width, height));
    }
    Ok(PhotoRenderer::new(&avatar.photo, &avatar.landmarks)?)
}

/// As [`lip_quantizer::encode_within_limits`], with the display picture.
fn encode(
    avatar: Identity<'_>,
    size: (usize, usize),
    plan: &PosePlan,
    subset: &PlanSubset,
    rasterizer: &Rasterizer<'_>,
    first_quantizer: usize,
    on_progress: &(dyn Fn(f64) + Sync),
) -> Result<(BakeOutput, usize), Error> {
    let (baked, at) = lip_quantizer::encode_within_limits(
        avatar,
        size,
        plan,
        subset,
        rasterizer,
        first_quantizer,
        on_progress,
    )?;
    let display_picture =
        webp::encode(&downscale_by_two(rasterizer.rest_picture()), DISPLAY_QUANTIZER)?;
    Ok((BakeOutput { display_picture, ..baked }, at))
}

/// Draws the picture of one pose again, for tests.
///
/// # Errors
/// If the character is out of range.
///
/// # Panics
/// If the plan has no such pose.
pub fn redraw(
    avatar: &AvatarSpec,
    size: (usize, usize),
    plan: &PosePlan,
    id: PoseId,
) -> Result<I420, Error> {
    let renderer = CharacterRenderer::new(&avatar.character)?;
    let stance = plan.stances[usize::from(id.stance)];
    let drawn = plan.stances[usize::from(plan.drawn_stance(id.stance))];
    let base = compose_pose(&avatar.rest, drawn, Look::default());
    let view = renderer.head_view(&base, size);
    let mut whole = view.draw(&base, Rect::whole(size.0, size.1));
    let look_pose = compose_pose(&avatar.rest, stance, plan.looks[usize::from(id.look)]);
    for (rect, moved) in [
        (view.mouth_rect(), Pose { mouth: plan.mouths[usize::from(id.mouth)], ..base }),
        (view.eyes_rect(), look_pose),
    ] {
        whole.add_change(&view.draw(&base, rect), &view.draw(&moved, rect), FEATHER);
    }
    let rgb = whole.to_picture().rgb();
    let chest = locate_chest(&renderer.head_view(&avatar.rest, size));
    Ok(I420::from_rgb(
        &chest.apply_breath(rgb, size, plan.breaths[usize::from(id.breath)]),
        size.0,
        size.1,
    ))
}

/// How much a smile narrows the eyes. Without it, a smile looks like a mask.
const SMILE_SQUINT: f32 = 0.25;

/// The pose at rest, with a stance and a look applied to it. The eyes remain on the user while the
/// head moves.
#[must_use]
pub fn compose_pose(rest: &Pose, stance: Stance, look: Look) -> Pose {
    let Stance { head, smile, brows } = stance;
    let mut pose = *rest;
    // Limited by the range above the smile at rest, or below it.
    pose.smile += smile * if smile > 0.0 { 1.0 - rest.smile } else { rest.smile };
    pose.eyes.squint = (pose.eyes.squint + smile.max(0.0) * SMILE_SQUINT).min(1.0);
    pose.head.yaw += head.yaw;
    pose.head.pitch += head.pitch;
    pose.head.roll += head.roll;
    pose.eyes.lids += look.eyes.lids;
    pose.eyes.squint += look.eyes.squint;
    pose.eyes.gaze_x += look.eyes.gaze_x - head.yaw / 0.45;
    pose.eyes.gaze_y += look.eyes.gaze_y + head.pitch / 0.35;
    let sum = |rest: f32, stance: f32, look: f32| (rest + stance + look).clamp(-1.0, 1.0);
    pose.brows.raise = sum(pose.brows.raise, brows.raise, look.brows.raise);
    pose.brows.knit = sum(pose.brows.knit, brows.knit, look.brows.knit);
    pose
}

/// Halves width and height by the mean of four pixels. The result has even sides, as VP8 requires.
fn downscale_by_two(picture: &Picture) -> Picture {
    let (width, height) = (picture.width / 4 * 2, picture.height / 4 * 2);
    let at =
        |x: usize, y: usize, k: usize| u32::from(picture.rgba[(y * picture.width + x) * 4 + k]);
    let rgba = (0..width * height * 4)
        .map(|i| {
            let (x, y, k) = (i / 4 % width * 2, i / 4 / width * 2, i % 4);
            ((at(x, y, k) + at(x + 1, y, k) + at(x, y + 1, k) + at(x + 1, y + 1, k) + 2) / 4) as u8
        })
        .collect();
    Picture { width, height, rgba }
}
