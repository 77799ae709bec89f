//! Encodes drawn pictures as frames.
//!
//! In a pose, only the moving parts may change, but a block that is encoded again never looks
//! exactly the same. A pose is therefore encoded in layers: first the head, then eyes and brows,
//! then lips or breath. Each layer is decoded before the next one. Where the next layer changes
//! nothing, it contains the decoded picture. Encoding that picture with the same quantizer
//! reproduces it.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rayon::prelude::*;

use super::avatar_source::Identity;
use super::bake::{BakeOutput, Error, MAX_SET_BYTES, MAX_SPEECH_FRAME_BYTES};
use super::picture::I420;
use super::pose_plan::{LARGE_PICTURE_PIXELS, PlanSubset, PosePlan};
use super::pose_set::{self, Manifest, PoseId, PoseSet};
use super::rasterize::Rasterizer;
use super::vp8::{self, BlockMode, Decoder, Encoder, Quantizers};

/// Differences of levels up to this do not justify a macroblock: a turned head changes the bloom of
/// every bright area.
const LEVEL_TOLERANCE: u8 = 3;

/// Fraction of the remaining work that one more attempt is estimated to take. The number of
/// attempts is not known in advance.
const ATTEMPT_FRACTION: f64 = 0.6;

/// Encodes a subset with the first of the plan's lip quantizers, starting at `first_quantizer`,
/// that makes the set small enough. If none does, it uses the last one. Returns the set and the
/// index of its quantizer. `on_progress` receives the completed fraction, 0 … 1, from any thread.
pub(super) fn encode_within_limits(
    person: Identity<'_>,
    size: (usize, usize),
    plan: &PosePlan,
    share: &PlanSubset,
    drawn: &Rasterizer<'_>,
    from: usize,
    on_progress: &(dyn Fn(f64) + Sync),
) -> Result<(BakeOutput, usize), Error> {
    let small = |set: &PoseSet| {
        set.to_bytes().len() <= MAX_SET_BYTES && is_speech_small(mean_speech_frame_bytes(set), size)
    };
    let mut before = 0.0;
    let mut at = |at: usize| {
        let span = (1.0 - before) * ATTEMPT_FRACTION;
        let of_this = |part: f64| on_progress(before + span * part);
        let encoded = encode(person, size, plan, share, drawn, plan.lip_quantizers[at], &of_this);
        before += span;
        encoded
    };
    let last =
        plan.lip_quantizers.len().checked_sub(1).ok_or(pose_set::Error::Damaged("no quantizer"))?;
    // The finest quantizer is enough for most avatars. Otherwise each attempt excludes half of the
    // remaining ones.
    let (mut low, mut high, mut middle) = (from.min(last), last, from.min(last));
    let mut best = None;
    while low <= high {
        let (set, likeness) = at(middle)?;
        if small(&set) {
            best = Some((set, likeness, middle));
            if middle == low {
                break;
            }
            high = middle - 1;
        } else {
            low = middle + 1;
        }
        middle = (low + high) / 2;
    }
    let (set, likeness, at) = match best {
        Some(best) => best,
        None => at(last).map(|(set, likeness)| (set, likeness, last))?,
    };
    let [psnr, colours] = likeness.mean_and_min();
    Ok((
        BakeOutput {
            pose_set: set,
            display_picture: Vec::new(),
            luma_psnr: psnr,
            chroma_psnr: colours,
        },
        at,
    ))
}

/// Every how many poses of a stance with a look are decoded and compared with their drawn
/// pictures.
const PSNR_STEP: usize = 4;

/// Every how many mouths are in a sample.
const SAMPLE_STEP: usize = 4;

/// The index of the first of the plan's lip quantizers with which a sample of the speech frames is
/// small enough. A sample costs a hundredth of an attempt with all frames, and photos often need a
/// coarser quantizer than drawn people: their faces have more texture.
pub(super) fn sample_quantizer(
    person: Identity<'_>,
    size: (usize, usize),
    plan: &PosePlan,
    share: &PlanSubset,
    drawn: &Rasterizer<'_>,
) -> Result<usize, Error> {
    let mouths = share.mouths.iter().copied().step_by(SAMPLE_STEP).collect();
    let sample = PlanSubset { stances: vec![0], looks: vec![0], mouths };
    let last = plan.lip_quantizers.len().saturating_sub(1);
    for at in 0..last {
        let quantizer = plan.lip_quantizers[at];
        let (set, _) = encode(person, size, plan, &sample, drawn, quantizer, &|_| ())?;
        if is_speech_small(mean_frame_bytes(&set, true), size) {
            return Ok(at);
        }
    }
    Ok(last)
}

/// Whether speech with frames of this mean length stays within the bandwidth of a call.
fn is_speech_small(frame_bytes: usize, size: (usize, usize)) -> bool {
    let pixels = (size.0 * size.1).max(LARGE_PICTURE_PIXELS);
    frame_bytes * LARGE_PICTURE_PIXELS <= MAX_SPEECH_FRAME_BYTES * pixels
}

/// Mean length of a speech frame in the finest quality level, in bytes. Looks other than the
/// resting one count for a quarter of the time.
fn mean_speech_frame_bytes(set: &PoseSet) -> usize {
    (mean_frame_bytes(set, true) * 3 + mean_frame_bytes(set, false)) / 4
}

/// The same of the frames with the resting look, or of those with another one.
fn mean_frame_bytes(set: &PoseSet, resting: bool) -> usize {
    let frames = set.manifest().frames.iter();
    let lips = frames.filter(|(key, _)| key.mouth != 0 && (key.look == 0) == resting);
    let (count, sum) =
        lips.fold((0, 0), |(n, sum), (_, lengths)| (n + 1, sum + lengths[0] as usize));
    sum / count.max(1)
}

/// PSNR of the frames against the drawn pictures, by plane.
#[derive(Default)]
struct PsnrStats(Vec<[f64; 3]>);

impl PsnrStats {
    /// PSNR of luma, and of the worse chroma plane: mean and minimum.
    fn mean_and_min(&self) -> [(f64, f64); 2] {
        let of = |one: fn(&[f64; 3]) -> f64| {
            let all = self.0.iter().map(one);
            (all.clone().sum::<f64>() / self.0.len().max(1) as f64, all.fold(f64::MAX, f64::min))
        };
        [of(|planes| planes[0]), of(|planes| planes[1].min(planes[2]))]
    }
}

/// Picture to encode, and where it differs from its reference frame.
#[derive(Clone)]
struct Layer {
    picture: I420,
    blocks: Vec<BlockMode>,
}

impl Layer {
    /// A layer equal to the reference frame.
    fn unchanged(picture: &I420) -> Self {
        let count = picture.width().div_ceil(16) * picture.height().div_ceil(16);
        Self { picture: picture.clone(), blocks: vec![BlockMode::Skipped; count] }
    }

    /// This layer, with the blocks of `now` that differ from `before`.
    fn overlay(&self, before: &I420, now: &I420, block: BlockMode) -> Self {
        self.overlay_blocks(&now.changed_blocks(before, LEVEL_TOLERANCE), now, block)
    }

    /// This layer, with the `changed` blocks of `now`.
    fn overlay_blocks(&self, changed: &[bool], now: &I420, block: BlockMode) -> Self {
        let mut layer = self.clone();
        for (at, _) in changed.iter().enumerate().filter(|(_, c)| **c) {
            layer.blocks[at] = block;
            layer.picture.copy_block(now, at);
        }
        layer
    }

    fn is_unchanged(&self) -> bool {
        self.blocks.iter().all(|block| *block == BlockMode::Skipped)
    }
}

/// Encoder and decoder of one avatar, initialized with its reference frames.
struct Codec {
    encoder: Encoder,
    decoder: Decoder,
}

impl Codec {
    /// Starts from a key frame, and an altref frame unless that is empty.
    fn with_references(
        (width, height): (usize, usize),
        key: &[u8],
        altref: &[u8],
    ) -> Result<Self, vp8::Error> {
        let mut decoder = Decoder::new(width, height)?;
        let key = decoder.decode(key)?;
        let altref = if altref.is_empty() { key.clone() } else { decoder.decode(altref)? };
        Ok(Self { encoder: Encoder::with_references(key, altref)?, decoder })
    }

    fn encode(
        &mut self,
        layer: &Layer,
        quantizers: Quantizers,
        uses_altref: bool,
    ) -> Result<Vec<u8>, Error> {
        let Layer { picture, blocks } = layer;
        Ok(if uses_altref {
            self.encoder.encode_altref_pose(picture, quantizers, blocks)?
        } else {
            self.encoder.encode_pose(picture, quantizers, blocks)?
        })
    }

    /// The layer as a decoder shows it.
    fn reconstruct(
        &mut self,
        layer: Layer,
        quantizers: Quantizers,
        uses_altref: bool,
    ) -> Result<Layer, Error> {
        if layer.is_unchanged() {
            return Ok(layer);
        }
        let frame = self.encode(&layer, quantizers, uses_altref)?;
        Ok(Layer { picture: self.decoder.decode(&frame)?, ..layer })
    }
}

/// Quantizers of the frames of a stance with a look. `lips` is the quantizer of the lips in the
/// finest quality level. The first offset is that of this quality level. The second one is added
/// for transient stances and looks in large pictures.
fn quantizers(
    plan: &PosePlan,
    (stance, look): (u8, u8),
    speaks: bool,
    lips: u32,
    (level_offset, large_picture_offset): (u32, u32),
) -> Quantizers {
    let more = |list: &(Vec<u8>, u32), one: u8| {
        if list.0.contains(&one) { list.1 + large_picture_offset } else { 0 }
    };
    let level_offset =
        level_offset + more(&plan.transient_stances, stance) + more(&plan.transient_looks, look);
    let (finest, finer) = plan.base_quantizer;
    let rest = finest.max(lips.saturating_sub(finer)) + level_offset;
    let lips = if speaks { lips + level_offset } else { rest };
    Quantizers { lips: lips.min(vp8::MAX_QUANTIZER), other: rest.min(vp8::MAX_QUANTIZER) }
}

fn encode(
    person: Identity<'_>,
    (width, height): (usize, usize),
    whole: &PosePlan,
    share: &PlanSubset,
    drawn: &Rasterizer<'_>,
    quantizer: u32,
    on_progress: &(dyn Fn(f64) + Sync),
) -> Result<(PoseSet, PsnrStats), Error> {
    let plan = whole.subset(share);
    let picture =
        |key: PoseId| drawn.picture(share.to_full_plan(key), plan.breaths[usize::from(key.breath)]);
    let rest = picture(PoseId::default());
    let mut encoder = Encoder::new(width, height)?;
    let larger = if width * height > LARGE_PICTURE_PIXELS { plan.large_picture_offset } else { 0 };
    let key = encoder.encode_key_frame(&rest, plan.key_quantizer + larger)?;
    let (lean, altref) = match plan.altref_stances.first() {
        None => (rest.clone(), Vec::new()),
        Some(&stance) => {
            let lean = picture(PoseId { stance, ..PoseId::default() });
            let blocks = Layer::unchanged(&rest).overlay(&rest, &lean, BlockMode::Coded).blocks;
            let altref = encoder.encode_altref(&lean, plan.altref_quantizer + larger, &blocks)?;
            (lean, altref)
        }
    };
    let keys = plan.pose_ids();
    let done = AtomicUsize::new(0);
    let level_offsets: Vec<u32> =
        std::iter::once(0).chain(plan.level_offsets.iter().copied()).collect();
    // Encodes the poses of a stance with a look in all quality levels, and measures the PSNR of some
    // frames of the finest level.
    let group = |group: &[(usize, PoseId)]| -> Result<(Vec<Vec<u8>>, PsnrStats), Error> {
        let Some((_, PoseId { stance, look, .. })) = group.first().copied() else {
            return Ok(Default::default());
        };
        let mut codec = Codec::with_references((width, height), &key, &altref)?;
        let uses_altref = plan.altref_stances.contains(&stance);
        let reference = if uses_altref { &lean } else { &rest };
        let held = picture(PoseId { stance, ..PoseId::default() });
        let head = Layer::unchanged(reference).overlay(reference, &held, BlockMode::Coded);
        // If the head itself is encoded again, brows and eyes are filtered with it.
        let eyes = if head.is_unchanged() { BlockMode::Unfiltered } else { BlockMode::Coded };
        let speaks = group.iter().any(|(_, key)| key.mouth != 0);
        let seen = picture(PoseId { stance, look, ..PoseId::default() });
        let mut faces = Vec::with_capacity(level_offsets.len());
        for offset in &level_offsets {
            let quantizers =
                quantizers(&plan, (stance, look), speaks, quantizer, (*offset, larger));
            let head = codec.reconstruct(head.clone(), quantizers, uses_altref)?;
            let face =
                codec.reconstruct(head.overlay(&held, &seen, eyes), quantizers, uses_altref)?;
            faces.push((face, quantizers));
        }
        let (mut frames, mut likeness) =
            (Vec::with_capacity(group.len() * level_offsets.len()), PsnrStats::default());
        for (index, (_, key)) in group.iter().enumerate() {
            let drawn = picture(*key);
            let block = if key.mouth == 0 { BlockMode::Coded } else { BlockMode::Lips };
            let changed = drawn.changed_blocks(&seen, LEVEL_TOLERANCE);
            for (level, (face, quantizers)) in faces.iter().enumerate() {
                let layer = face.overlay_blocks(&changed, &drawn, block);
                let frame = codec.encode(&layer, *quantizers, uses_altref)?;
                if level == 0 && index.is_multiple_of(PSNR_STEP) {
                    likeness.0.push(codec.decoder.decode(&frame)?.plane_psnrs(&drawn));
                }
                frames.push(frame);
            }
            on_progress((done.fetch_add(1, Ordering::Relaxed) + 1) as f64 / keys.len() as f64);
        }
        Ok((frames, likeness))
    };
    let mut sorted: Vec<(usize, PoseId)> = keys.iter().copied().enumerate().collect();
    sorted.sort_by_key(|(at, key)| (key.stance, key.look, *at));
    let groups: Vec<_> =
        sorted.chunk_by(|(_, a), (_, b)| (a.stance, a.look) == (b.stance, b.look)).collect();
    let encoded: Vec<_> =
        groups.par_iter().with_max_len(1).map(|one| group(one)).collect::<Result<_, Error>>()?;
    let mut frames = vec![Bytes::new(); keys.len() * level_offsets.len()];
    let mut likeness = PsnrStats::default();
    for (group, (encoded, alike)) in groups.iter().zip(encoded) {
        likeness.0.extend(alike.0);
        let places = group
            .iter()
            .flat_map(|(at, _)| at * level_offsets.len()..(at + 1) * level_offsets.len());
        for (place, frame) in places.zip(encoded) {
            frames[place] = Bytes::from(frame);
        }
    }
    let lips = level_offsets.iter().map(|coarser| (quantizer + coarser).min(vp8::MAX_QUANTIZER));
    let manifest = Manifest {
        id: person.id.to_owned(),
        name: person.name.to_owned(),
        gender: person.gender.as_str().into(),
        voice: person.voice.to_owned(),
        width: width as u32,
        height: height as u32,
        quantizers: std::iter::once(plan.key_quantizer + larger).chain(lips).collect(),
        altref_stances: plan.altref_stances,
        stances: plan.stances,
        looks: plan.looks,
        mouths: plan.mouths,
        breaths: plan.breaths,
        frames: keys.iter().map(|key| (*key, Vec::new())).collect(),
        key_length: 0,
        altref_length: 0,
    };
    Ok((PoseSet::new(manifest, key.into(), altref.into(), frames)?, likeness))
}
