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
use super::bake::{Error, PLAN_VERSION};
use super::manifest::{Anchor, Manifest, PoseId};
use super::picture::I420;
use super::plan_subset::PlanSubset;
use super::pose_plan::{LARGE_PICTURE_PIXELS, PoseGroup, PosePlan};
use super::pose_set::PoseSet;
use super::rasterize::Rasterizer;
use super::vp8::{self, BlockMode, Decoder, Encoder, Quantizers};

/// Differences of levels up to this do not justify a macroblock: a turned head changes the bloom of
/// every bright area.
const LEVEL_TOLERANCE: u8 = 3;

/// Every how many poses of a stance with a look are decoded and compared with their drawn
/// pictures.
const PSNR_STEP: usize = 4;

/// PSNR of the frames against the drawn pictures, by plane.
#[derive(Default)]
pub(super) struct PsnrStats(Vec<[f64; 3]>);

impl PsnrStats {
    /// PSNR of luma, and of the worse chroma plane: mean and minimum.
    pub(super) fn mean_and_min(&self) -> [(f64, f64); 2] {
        let of = |one: fn(&[f64; 3]) -> f64| {
            let all = self.0.iter().map(one);
            (all.clone().sum::<f64>() / self.0.len().max(1) as f64, all.fold(f64::MAX, f64::min))
        };
        [of(|planes| planes[0]), of(|planes| planes[1].min(planes[2]))]
    }
}

/// PSNR of luma in dB of the macroblocks that change.
fn luma_psnr_of(changed: &[bool], a: &I420, b: &I420) -> f64 {
    let columns = a.width().div_ceil(16);
    let (mut sum, mut count) = (0, 0);
    for block in (0..changed.len()).filter(|block| changed[*block]) {
        let (x, y) = (block % columns * 16, block / columns * 16);
        for y in y..(y + 16).min(a.height()) {
            for x in x..(x + 16).min(a.width()) {
                sum += u64::from(a.luma(x, y).abs_diff(b.luma(x, y))).pow(2);
                count += 1_u32;
            }
        }
    }
    10.0 * (255.0 * 255.0 * f64::from(count) / (sum as f64).max(1.0)).log10()
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

/// Encoder and decoder of one avatar, initialized with the reference frames of one head.
struct Codec {
    encoder: Encoder,
    decoder: Decoder,
}

impl Codec {
    /// Starts from a key frame, and from an anchor if there is one.
    fn with_references(
        (width, height): (usize, usize),
        key: &[u8],
        anchor: Option<&[u8]>,
    ) -> Result<Self, vp8::Error> {
        let mut decoder = Decoder::new(width, height)?;
        let key = decoder.decode(key)?;
        let altref = anchor.map_or_else(|| Ok(key.clone()), |anchor| decoder.decode(anchor))?;
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

/// Quantizers of a group. `lips` is the quantizer of the lips in the finest quality level. The first
/// offset is that of this quality level. The second one is added for what is seen briefly in large
/// pictures. What is seen briefly is coarser, except lips that speak: viewers look at them.
fn quantizers(
    plan: &PosePlan,
    group: &PoseGroup,
    lips: u32,
    (level_offset, large_picture_offset): (u32, u32),
) -> Quantizers {
    let brief = if group.offset > 0 { group.offset + large_picture_offset } else { 0 };
    let (finest, finer) = plan.base_quantizer;
    let rest = finest.max(lips.saturating_sub(finer)) + level_offset + brief;
    let speaks = group.mouths.iter().any(|mouth| *mouth != 0);
    let lips = if speaks { lips + level_offset } else { rest };
    Quantizers { lips: lips.min(vp8::MAX_QUANTIZER), other: rest.min(vp8::MAX_QUANTIZER) }
}

/// The reference frames of a set, and the pictures that they show.
struct References {
    key: (Vec<u8>, I420),
    anchors: Vec<(Vec<u8>, I420)>,
}

impl References {
    /// Encodes the key frame and the anchors. `offset` is added to their quantizers.
    fn encode(
        plan: &PosePlan,
        (width, height): (usize, usize),
        offset: u32,
        picture: &dyn Fn(PoseId) -> I420,
    ) -> Result<Self, Error> {
        let rest = picture(PoseId::default());
        let mut encoder = Encoder::new(width, height)?;
        let key = encoder.encode_key_frame(&rest, plan.key_quantizer + offset)?;
        let mut anchor = |stances: &Vec<u8>| -> Result<(Vec<u8>, I420), Error> {
            let stance = stances.first().copied().unwrap_or(0);
            let head = picture(PoseId { stance, ..PoseId::default() });
            let blocks = Layer::unchanged(&rest).overlay(&rest, &head, BlockMode::Coded).blocks;
            Ok((encoder.encode_altref(&head, plan.anchor_quantizer + offset, &blocks)?, head))
        };
        let anchors = plan.anchors.iter().map(&mut anchor).collect::<Result<_, _>>()?;
        Ok(Self { key: (key, rest), anchors })
    }
}

/// All poses of a plan.
#[derive(Default)]
struct EncodedPoses {
    ids: Vec<PoseId>,
    /// Of each pose, its quality levels.
    frames: Vec<Vec<Bytes>>,
    likeness: PsnrStats,
}

/// How much worse a mouth may look on the anchor of raised brows than on that of its head, in dB.
const MAX_SHARING_LOSS: f64 = 0.4;

/// A plan to encode, with its pictures.
struct Encoding<'a> {
    plan: &'a PosePlan,
    size: (usize, usize),
    references: &'a References,
    /// Quantizer of the lips in the finest quality level.
    lips: u32,
    large_picture_offset: u32,
    picture: &'a (dyn Fn(PoseId) -> I420 + Sync),
    /// Called after each pose.
    on_pose: &'a (dyn Fn() + Sync),
}

impl Encoding<'_> {
    /// Encodes the poses of a group, each in all its quality levels, and measures the PSNR of some
    /// frames of the finest level.
    fn encode(&self, group: &PoseGroup) -> Result<(Vec<Vec<Bytes>>, PsnrStats), Error> {
        let Self { plan, picture, .. } = *self;
        let PoseGroup { stance, look, .. } = *group;
        let anchor = plan.anchors.iter().position(|stances| stances.contains(&stance));
        let anchor = anchor.map(|n| &self.references.anchors[n]);
        let (key, rest) = &self.references.key;
        let mut codec =
            Codec::with_references(self.size, key, anchor.map(|(frame, _)| frame.as_slice()))?;
        let (uses_altref, reference) = (anchor.is_some(), anchor.map_or(rest, |(_, head)| head));
        let held = picture(PoseId { stance, ..PoseId::default() });
        let head = Layer::unchanged(reference).overlay(reference, &held, BlockMode::Coded);
        // If the head itself is encoded again, brows and eyes are filtered with it.
        let eyes = if head.is_unchanged() { BlockMode::Unfiltered } else { BlockMode::Coded };
        let seen = picture(PoseId { stance, look, ..PoseId::default() });
        let further = plan.level_offsets.iter().copied().filter(|_| group.coarse);
        let mut faces = Vec::new();
        for offset in [0].into_iter().chain(further) {
            let quantizers =
                quantizers(plan, group, self.lips, (offset, self.large_picture_offset));
            let head = codec.reconstruct(head.clone(), quantizers, uses_altref)?;
            let face =
                codec.reconstruct(head.overlay(&held, &seen, eyes), quantizers, uses_altref)?;
            faces.push((face, quantizers));
        }
        let (mut poses, mut likeness) = (Vec::new(), PsnrStats::default());
        for (index, id) in group.pose_ids().enumerate() {
            let drawn = picture(id);
            let block = if id.mouth == 0 { BlockMode::Coded } else { BlockMode::Lips };
            let changed = drawn.changed_blocks(&seen, LEVEL_TOLERANCE);
            let mut levels = Vec::with_capacity(faces.len());
            for (face, quantizers) in &faces {
                let layer = face.overlay_blocks(&changed, &drawn, block);
                let frame = codec.encode(&layer, *quantizers, uses_altref)?;
                if levels.is_empty() && index.is_multiple_of(PSNR_STEP) {
                    likeness.0.push(codec.decoder.decode(&frame)?.plane_psnrs(&drawn));
                }
                levels.push(Bytes::from(frame));
            }
            poses.push(levels);
            (self.on_pose)();
        }
        Ok((poses, likeness))
    }

    /// The mouths with raised brows that cannot be shared with their head, whose group this is.
    /// `poses` are its frames. A frame may copy what is above the mouth, and brows differ there.
    fn unshared(
        &self,
        group: &PoseGroup,
        poses: &[Vec<Bytes>],
    ) -> Result<Option<PoseGroup>, Error> {
        let Self { plan, picture, .. } = *self;
        let head = plan.heads.iter().find(|head| head.stance == group.stance && group.look == 0);
        let Some(raised) = head.and_then(|head| head.raised).filter(|_| group.breaths == [0])
        else {
            return Ok(None);
        };
        let decoded = |stance: u8| -> Result<Vec<f64>, Error> {
            let anchor = plan.anchors.iter().position(|stances| stances.contains(&stance));
            let anchor = anchor.map(|n| self.references.anchors[n].0.as_slice());
            let mut codec = Codec::with_references(self.size, &self.references.key.0, anchor)?;
            let still = picture(PoseId { stance, ..PoseId::default() });
            let psnr = |(mouth, levels): (&u8, &Vec<Bytes>)| -> Result<f64, Error> {
                let drawn = picture(PoseId { stance, mouth: *mouth, ..PoseId::default() });
                let changed = drawn.changed_blocks(&still, LEVEL_TOLERANCE);
                Ok(luma_psnr_of(&changed, &codec.decoder.decode(&levels[0])?, &drawn))
            };
            group.mouths.iter().zip(poses).map(psnr).collect()
        };
        let (own, shared) = (decoded(group.stance)?, decoded(raised)?);
        let worse = group.mouths.iter().zip(own.iter().zip(shared));
        let mouths: Vec<u8> = worse
            .filter(|(_, (own, shared))| *own - shared > MAX_SHARING_LOSS)
            .map(|(mouth, _)| *mouth)
            .collect();
        Ok((!mouths.is_empty()).then(|| PoseGroup { stance: raised, mouths, ..group.clone() }))
    }

    /// Encodes all groups, and the mouths that cannot be shared.
    fn encode_all(&self) -> Result<EncodedPoses, Error> {
        type Encoded = Vec<(PoseGroup, Vec<Vec<Bytes>>, PsnrStats)>;
        let groups = self.plan.groups.par_iter().with_max_len(1);
        let encoded = groups.map(|group| {
            let (poses, likeness) = self.encode(group)?;
            let mut all = vec![(group.clone(), poses, likeness)];
            if let Some(group) = self.unshared(group, &all[0].1)? {
                let (poses, likeness) = self.encode(&group)?;
                all.push((group, poses, likeness));
            }
            Ok(all)
        });
        let encoded: Vec<Encoded> = encoded.collect::<Result<_, Error>>()?;
        let mut all = EncodedPoses::default();
        for (group, frames, likeness) in encoded.into_iter().flatten() {
            all.ids.extend(group.pose_ids());
            all.frames.extend(frames);
            all.likeness.0.extend(likeness.0);
        }
        Ok(all)
    }
}

/// Encodes a subset of a plan, with this quantizer of the lips in the finest quality level.
pub(super) fn encode(
    person: Identity<'_>,
    size: (usize, usize),
    whole: &PosePlan,
    share: &PlanSubset,
    drawn: &Rasterizer<'_>,
    lips: u32,
    on_progress: &(dyn Fn(f64) + Sync),
) -> Result<(PoseSet, PsnrStats), Error> {
    let plan = whole.subset(share);
    let picture =
        |id: PoseId| drawn.picture(share.to_full_plan(id), plan.breaths[usize::from(id.breath)]);
    let is_large = size.0 * size.1 > LARGE_PICTURE_PIXELS;
    let large_picture_offset = if is_large { plan.large_picture_offset } else { 0 };
    let references = References::encode(&plan, size, large_picture_offset, &picture)?;
    let (count, done) = (plan.pose_ids().len(), AtomicUsize::new(0));
    let on_pose = || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        on_progress((done as f64 / count as f64).min(1.0));
    };
    let EncodedPoses { ids, frames, likeness } = Encoding {
        plan: &plan,
        size,
        references: &references,
        lips,
        large_picture_offset,
        picture: &picture,
        on_pose: &on_pose,
    }
    .encode_all()?;
    let levels = [0].into_iter().chain(plan.level_offsets.iter().copied());
    let levels = levels.map(|coarser| (lips + coarser).min(vp8::MAX_QUANTIZER));
    let manifest = Manifest {
        id: person.id.to_owned(),
        name: person.name.to_owned(),
        gender: person.gender.as_str().into(),
        voice: person.voice.to_owned(),
        width: size.0 as u32,
        height: size.1 as u32,
        plan_version: PLAN_VERSION,
        framing: person.framing,
        quantizers: [plan.key_quantizer + large_picture_offset].into_iter().chain(levels).collect(),
        anchors: plan.anchors.iter().cloned().map(Anchor::of).collect(),
        heads: plan.heads.clone(),
        frames: ids.into_iter().map(|id| (id, Vec::new())).collect(),
        stances: plan.stances,
        looks: plan.looks,
        mouths: plan.mouths,
        breaths: plan.breaths,
        key_length: 0,
    };
    let References { key: (key, _), anchors } = references;
    let anchors = anchors.into_iter().map(|(frame, _)| frame.into()).collect();
    Ok((PoseSet::new(manifest, key.into(), anchors, frames)?, likeness))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::avatar_source::AvatarSource;
    use crate::face::bake::PatchCache;
    use crate::face::character_avatar::CharacterAvatar;
    use crate::face::pose_plan::PHOTO_HEADS;
    use crate::face::{HeadName, avatar_spec};

    fn decode(set: &PoseSet, id: PoseId) -> I420 {
        let (width, height) = (set.manifest().width as usize, set.manifest().height as usize);
        let (mut decoder, index) = (Decoder::new(width, height).unwrap(), set.frame_index(id));
        decoder.decode(set.key_frame()).unwrap();
        let anchor = set.anchor_of(index, id).unwrap();
        decoder.decode(set.anchor_frame(anchor)).unwrap();
        decoder.decode(set.frame(index, 0)).unwrap()
    }

    /// The mouths with raised brows of a person: whether the frame is shared with their head, and
    /// the PSNR of moving macroblocks against the drawing, also of an own frame. Of the first heads
    /// that raise the brows.
    fn shared_and_own(
        name: &str,
        side: usize,
        heads: usize,
    ) -> Vec<(HeadName, PoseId, bool, [f64; 2])> {
        let (avatar, size) = (avatar_spec::find(name).unwrap(), (side, side));
        let whole = PosePlan::with_heads(PHOTO_HEADS);
        let raise = whole.heads.iter().filter(|head| head.raised.is_some()).take(heads);
        let mut stances: Vec<u8> =
            raise.flat_map(|head| [Some(head.stance), head.raised]).flatten().chain([0]).collect();
        stances.sort_unstable();
        let part = PlanSubset { stances, looks: vec![0], ..PlanSubset::full(&whole) };
        let shared = whole.subset(&part);
        let raised: Vec<_> = shared
            .heads
            .iter()
            .filter_map(|head| Some((head.name, head.stance, head.raised?)))
            .collect();
        assert_eq!(raised.len(), heads);
        let own = |(_, head, stance): &(HeadName, u8, u8)| {
            let spoken = |group: &&PoseGroup| group.stance == *head && group.mouths.len() > 1;
            let group = shared.groups.iter().find(spoken).unwrap();
            PoseGroup { stance: *stance, ..group.clone() }
        };
        let own: Vec<PoseGroup> = raised.iter().map(own).collect();
        let own = PosePlan { groups: [&shared.groups[..], &own].concat(), ..shared.clone() };
        let cache = PatchCache::new(None).unwrap();
        let renderer = CharacterAvatar::new(&avatar, size, &cache).unwrap();
        let mut drawn = Rasterizer::new(&renderer, None, &own).unwrap();
        let all = PlanSubset::full(&own);
        drawn.draw(&all, &mut |_| ()).unwrap();
        let person = AvatarSource::from(&avatar).identity();
        let encoded = |plan| encode(person, size, plan, &all, &drawn, 30, &|_| ()).unwrap().0;
        let sets = [encoded(&shared), encoded(&own)];
        let mut found = Vec::new();
        for (name, _, stance) in raised {
            let still = drawn.picture(PoseId { stance, ..PoseId::default() }, 0.0);
            for mouth in 1..shared.mouths.len() as u8 {
                let id = PoseId { stance, mouth, ..PoseId::default() };
                let [shown, own] = sets
                    .each_ref()
                    .map(|set| set.manifest().frames[usize::from(set.frame_index(id))].0.stance);
                assert_eq!(own, stance, "the second set has own frames");
                let picture = drawn.picture(id, 0.0);
                let changed = picture.changed_blocks(&still, LEVEL_TOLERANCE);
                let psnr =
                    sets.each_ref().map(|set| luma_psnr_of(&changed, &decode(set, id), &picture));
                found.push((name, id, shown != stance, psnr));
            }
        }
        found
    }

    #[test]
    fn what_is_seen_briefly_is_coarser_but_not_the_lips() {
        let plan = PosePlan::new();
        for group in &plan.groups {
            for levels in [0, 20] {
                let found = quantizers(&plan, group, 34, (levels, 0));
                let other = (32 + group.offset + levels).min(vp8::MAX_QUANTIZER);
                assert_eq!(found.other, other, "{group:?}");
                let speaks = group.mouths.len() > 1;
                assert_eq!(found.lips, if speaks { 34 + levels } else { found.other }, "{group:?}");
            }
        }
        assert!(plan.groups.iter().any(|group| group.offset > 0 && group.mouths.len() > 1));
    }

    /// A shared mouth may look worse than an own one by this much, in dB.
    const MAX_LOSS: f64 = 0.5;

    fn assert_shared_mouths_look_alike(name: &str, side: usize, heads: usize) {
        let found = shared_and_own(name, side, heads);
        let losses = found.iter().map(|(_, _, _, [shared, own])| own - shared);
        let mean = losses.clone().sum::<f64>() / found.len() as f64;
        let worst = losses.fold(f64::MIN, f64::max);
        let shared = found.iter().filter(|(_, _, shared, _)| *shared).count();
        let bad: Vec<_> =
            found.iter().filter(|(_, _, _, [shared, own])| own - shared > MAX_LOSS).collect();
        assert!(bad.is_empty(), "{name}: {bad:?}");
        let count = found.len();
        assert!(
            shared * 10 >= count * 8 && mean < MAX_LOSS / 2.0,
            "{name}, {side}: {shared} of {count} shared, loss {mean:.2} dB, at most {worst:.2} dB"
        );
    }

    #[test]
    fn mouths_on_the_anchor_of_raised_brows_look_like_own_ones() {
        assert_shared_mouths_look_alike("amina", 128, 1);
    }

    #[test]
    #[ignore = "long: faces"]
    fn long_faces_mouths_on_the_anchor_of_raised_brows_look_like_own_ones() {
        // A headscarf, curls, long hair, a beard.
        for name in ["amina", "theo", "clara", "martin"] {
            assert_shared_mouths_look_alike(name, 512, 2);
        }
    }
}
