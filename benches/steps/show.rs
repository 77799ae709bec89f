//! Frame selection: which frame of the pose set an avatar shows.

use std::hint::black_box;
use std::sync::Arc;

use benches::cpu::{CpuTime, bench_each};
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::Time;
use criterion::Criterion;
use engine::show::{AvatarAnimator, Avatars};
use models::face::PoseSet;
use models::tts::Phone;

/// Frame interval, in µs.
pub(crate) const FRAME_INTERVAL: u64 = 40_000;
pub(crate) const SEGMENT: SegmentId = SegmentId(1);
/// "My name is Theo, and I am pleased to meet you." as phones of the CMU set, each with its end in
/// seconds.
const SENTENCE: &str = "pau:0.12 m:0.16 ay:0.30 n:0.35 ey:0.60 m:0.68 ih:0.76 z:0.84 th:0.96 \
    iy:1.08 ow:1.18 pau:1.27 ae:1.42 n:1.46 d:1.48 ay:1.71 ae:1.84 m:1.92 p:2.04 l:2.10 iy:2.24 \
    z:2.33 d:2.38 t:2.46 ax:2.50 m:2.59 iy:2.70 t:2.77 y:2.88 uw:3.04 pau:3.27";
/// Number of frames of the sentence.
pub(crate) const FRAME_COUNT: u64 = 82;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let avatars = Avatars::built_in().expect("the built-in avatars");
    let set = Arc::clone(&avatars.as_slice()[0].pose_set);
    let mut face = speaking_face(&set);
    let mut number = 0;
    bench_each(c, "face: a picture while speaking", || {
        number += 1;
        let at = (number % FRAME_COUNT) as f32 * FRAME_INTERVAL as f32 / 1e6;
        black_box(face.next_frame(Time::from_micros(number * FRAME_INTERVAL), Some((SEGMENT, at))))
    });
    // While the agent listens, usually nothing changes and no frame is sent.
    face.retain_segments(|segment| segment != SEGMENT);
    face.set_state(AgentState::Listening, false);
    bench_each(c, "face: a picture while listening", || {
        number += 1;
        black_box(face.next_frame(Time::from_micros(number * FRAME_INTERVAL), None))
    });
}

/// An avatar that has shown its key frame, with the phones of the segment.
pub(crate) fn speaking_face(set: &Arc<PoseSet>) -> AvatarAnimator {
    let mut face = AvatarAnimator::new(Arc::clone(set), 25, 1);
    assert!(face.next_frame(Time::ZERO, None).is_some_and(|frame| frame.is_key_frame));
    face.set_state(AgentState::Speaking, false);
    face.add_phones(SEGMENT, &phones());
    face
}

/// The phones of the sentence.
pub(crate) fn phones() -> Vec<Phone> {
    let phone = |word: &str| {
        let (name, end) = word.split_once(':').expect("name:end");
        Phone::new(name, end.parse().expect("seconds"))
    };
    SENTENCE.split_whitespace().map(phone).collect()
}
