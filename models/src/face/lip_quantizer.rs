//! Finds the finest quantizer of the lips with which a pose set is small enough.

use super::avatar_source::Identity;
use super::bake::{BakeOutput, Error, MAX_SPEECH_FRAME_BYTES, max_set_bytes, scale_to};
use super::frames::encode;
use super::manifest::{Mood, SpeakingHead};
use super::plan_subset::PlanSubset;
use super::pose_plan::{PoseGroup, PosePlan};
use super::pose_set::{self, PoseSet};
use super::rasterize::Rasterizer;

/// Fraction of the remaining work that one more attempt is estimated to take. The number of
/// attempts is not known in advance.
const ATTEMPT_FRACTION: f64 = 0.6;

/// Encodes a subset with the first of the plan's lip quantizers, starting at number `from`, that
/// makes the set small enough. If none does, it uses the last one. Returns the set and the number
/// of its quantizer. `on_progress` receives the completed fraction, 0 … 1, from any thread.
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
        set.to_bytes().len() <= max_set_bytes(size)
            && is_speech_small(mean_speech_frame_bytes(set), size)
    };
    let mut before = 0.0;
    let mut encoded_at = |at: usize| {
        let span = (1.0 - before) * ATTEMPT_FRACTION;
        let of_this = |part: f64| on_progress(before + span * part);
        let encoded = encode(person, size, plan, share, drawn, plan.lip_quantizers[at], &of_this);
        before += span;
        encoded
    };
    let none = pose_set::Error::Damaged("no quantizer");
    let Some(last) = plan.lip_quantizers.len().checked_sub(1) else { return Err(none.into()) };
    // All quantizers below `low` are too fine. Steps to coarser ones double until one is coarse
    // enough: the first one usually is, or the second. Each further attempt then excludes half.
    let (mut low, mut step) = (from.min(last), 1);
    let (mut next, mut best) = (low, None);
    while best.as_ref().is_none_or(|(_, best)| low < *best) {
        let encoded = encoded_at(next)?;
        if small(&encoded.0) || next == last {
            best = Some((encoded, next));
            next = (low + next) / 2;
        } else {
            low = next + 1;
            next = match &best {
                Some((_, best)) => (low + best) / 2,
                None => (next + step).min(last),
            };
            step *= 2;
        }
    }
    let Some(((set, likeness), at)) = best else { return Err(none.into()) };
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

/// Every how many mouths are in a sample.
const SAMPLE_STEP: usize = 4;

/// The number of the first of the plan's lip quantizers with which a sample of the speech frames is
/// small enough. A sample costs a fortieth of an attempt with all frames.
pub(super) fn sample_quantizer(
    person: Identity<'_>,
    size: (usize, usize),
    plan: &PosePlan,
    share: &PlanSubset,
    drawn: &Rasterizer<'_>,
) -> Result<usize, Error> {
    let sample = speech_sample(plan, share);
    let all = PlanSubset::full(&sample);
    let is_small = |at: usize| -> Result<bool, Error> {
        let lips = sample.lip_quantizers[at];
        let (set, _) = encode(person, size, &sample, &all, drawn, lips, &|_| ())?;
        Ok(is_speech_small(mean_speech_frame_bytes(&set), size))
    };
    let (mut low, mut high) = (0, sample.lip_quantizers.len().saturating_sub(1));
    // The finest one is often small enough. Of the others, each sample excludes half.
    if high == 0 || is_small(0)? {
        return Ok(0);
    }
    low += 1;
    while low < high {
        let middle = (low + high) / 2;
        if is_small(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(low)
}

/// Some mouths at rest, and with another calm head if the subset has one. States have the numbers
/// of `plan`.
fn speech_sample(plan: &PosePlan, share: &PlanSubset) -> PosePlan {
    let drawn = plan.subset(share).heads;
    let calm = drawn.iter().filter(|head| head.mood == Mood::Calm);
    let other = calm.map(|head| share.stances[usize::from(head.stance)]).next_back();
    let speaks = |stance: u8| stance == 0 || Some(stance) == other;
    let mouths: Vec<u8> = share.mouths.iter().copied().step_by(SAMPLE_STEP).collect();
    let open = |group: &&PoseGroup| group.look == 0 && group.breaths == [0] && speaks(group.stance);
    let groups = plan.groups.iter().filter(open);
    let heads = plan.heads.iter().filter(|head| speaks(head.stance));
    let anchors = plan.anchors.iter().filter(|anchor| anchor.iter().any(|stance| speaks(*stance)));
    PosePlan {
        groups: groups.map(|group| PoseGroup { mouths: mouths.clone(), ..group.clone() }).collect(),
        heads: heads.map(|head| SpeakingHead { raised: None, ..head.clone() }).collect(),
        anchors: anchors.cloned().collect(),
        ..plan.clone()
    }
}

/// Whether speech with frames of this mean length stays within the bandwidth of a call.
fn is_speech_small(frame_bytes: usize, size: (usize, usize)) -> bool {
    frame_bytes <= scale_to(size, MAX_SPEECH_FRAME_BYTES)
}

/// Share of the speech that the head at rest shows, in percent. The others show the rest of it.
const REST_PERCENT: usize = 45;

/// Mean length of a speech frame in the finest quality level, in bytes.
fn mean_speech_frame_bytes(set: &PoseSet) -> usize {
    let rest = mean_head_bytes(set, |stance| stance == 0);
    let others: Vec<u8> =
        set.heads().iter().map(|head| head.stance).filter(|stance| *stance != 0).collect();
    if others.is_empty() {
        return rest;
    }
    let others = mean_head_bytes(set, |stance| others.contains(&stance));
    (rest * REST_PERCENT + others * (100 - REST_PERCENT)) / 100
}

/// The same of the heads with these stances. Looks other than the resting one count for a quarter
/// of the time.
fn mean_head_bytes(set: &PoseSet, is_head: impl Fn(u8) -> bool) -> usize {
    let mean = |resting: bool| {
        let frames = set.manifest().frames.iter();
        let lips = frames
            .filter(|(key, _)| key.mouth != 0 && is_head(key.stance) && (key.look == 0) == resting);
        let (count, sum) =
            lips.fold((0, 0), |(n, sum), (_, lengths)| (n + 1, sum + lengths[0] as usize));
        (count > 0).then(|| sum / count)
    };
    let open = mean(true).unwrap_or(0);
    (open * 3 + mean(false).unwrap_or(open)) / 4
}
