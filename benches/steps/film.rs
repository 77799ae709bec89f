//! A video of a text, in its child process, from speech that a voice has spoken: poses, sound into
//! Opus, WebM.

use std::hint::black_box;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench_with_count};
use benches::recording::speech_frames;
use criterion::Criterion;
use engine::show::Avatars;
use models::face::PoseSet;
use studio::{Error, Options, SpeechSource, Spoken};

use crate::show;

/// Length of the video: its beginning and its end weigh little.
const SECONDS: u64 = 10;
/// Silence before and after the speech.
const SILENCE: Duration = Duration::from_millis(1_200);
/// Samples of a sentence whose phones are [`show::phones`].
const SENTENCE_SAMPLES: usize = 48_000 * 327 / 100;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let avatars = Avatars::built_in().expect("the built-in avatars");
    let set = Arc::clone(&avatars.as_slice()[0].pose_set);
    let samples = speech_frames().concat();
    bench_with_count(c, "film: ten seconds of a spoken text", 1, |count| {
        (0..count).map(|_| time_film(&set, &samples)).sum()
    });
}

/// CPU time of a video.
fn time_film(set: &Arc<PoseSet>, samples: &[i16]) -> Duration {
    let mut speech = Sentences { samples: samples.to_vec(), position: 0 };
    let options = Options { frame_rate: 25, seed: 1 };
    let mut out = Cursor::new(Vec::with_capacity(1 << 20));
    let mut duration = Duration::ZERO;
    let time = cpu::measure(|| {
        let set = Arc::clone(set);
        let film = studio::render(set, &mut speech, &options, &mut out, None, &mut |_| {});
        duration = film.expect("a video").duration;
    });
    assert_eq!(duration, Duration::from_secs(SECONDS));
    black_box(out);
    time
}

/// The same sentence again and again, without pauses.
struct Sentences {
    samples: Vec<i16>,
    position: usize,
}

impl SpeechSource for Sentences {
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error> {
        let end = (SECONDS * 48_000) as usize - SILENCE.as_millis() as usize * 48;
        let start = self.position;
        self.position = (start + SENTENCE_SAMPLES).min(end);
        let samples = self.samples[start..self.position].to_vec();
        let spoken = Spoken { samples, phones: show::phones(), ..Spoken::default() };
        Ok((start < end).then_some(spoken))
    }

    fn done(&self) -> f32 {
        0.0
    }

    fn tail(&self) -> Duration {
        Duration::ZERO
    }
}
