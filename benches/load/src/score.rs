//! Compares what a caller receives with what it said. The agent's audio is analyzed in windows of 5
//! ms, on the caller's own clock.
//!
//! ```text
//! silent ──loud window──► speaking                      an answer, if an utterance is over
//! speaking ──.1 s without loud windows──► silent
//! speaking ──onset of a barge-in──► interrupted         level = mean of up to 20 loud windows
//! interrupted ──window below half the level──► ducked   gives `duck`
//! interrupted ──.1 s without loud windows──► silent     gives `barge_in` and `duck`
//! ducked ──.1 s without loud windows──► silent          gives `barge_in`
//! ```

use std::sync::Arc;

use crate::workload::Workload;

/// Minimum RMS of a loud window: −45 dBFS, the same limit that gave the recording's own ends.
const LOUD_RMS: f32 = 184.0;
/// Length of a window, in s.
const WINDOW_SECONDS: f64 = 0.005;
/// Minimum duration of silence, in s: shorter than any pause between two replies, longer than the
/// gaps within speech.
const MIN_SILENCE: f64 = 0.1;
/// A window below this share of the previous level is ducked: −6 dB, halfway to the −12 dB of
/// ducking.
const DUCK_RATIO: f32 = 0.5;
/// A longer time without a video frame while the agent speaks is a freeze, in s. An avatar that
/// only listens may stand still, and then no frame is sent.
const FREEZE_THRESHOLD: f64 = 0.2;
/// Number of windows over which the level before an interruption is measured.
const LEVEL_WINDOWS: usize = 20;

/// Scores of one call; times in s.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    /// True end of an utterance → delivery of the first audio frame of the reply.
    pub(crate) voice_to_voice: Vec<f64>,
    /// The same, minus the time of an ideal engine.
    pub(crate) overhead: Vec<f64>,
    /// True onset of an interruption → end of the last sound before silence.
    pub(crate) barge_in: Vec<f64>,
    /// True onset of an interruption → the agent has half the level, or is silent.
    pub(crate) duck: Vec<f64>,
    /// Number of unanswered utterances.
    pub(crate) unanswered: usize,
    /// Time in which the agent spoke.
    pub(crate) speaking_seconds: f64,
    /// Number of video frames received while it spoke.
    pub(crate) frames: u64,
    /// Number of intervals over .2 s without a video frame while it spoke.
    pub(crate) freezes: u64,
}

/// An interruption in progress.
struct Interruption {
    onset: f64,
    level: f32,
    ducked: bool,
}

/// Scores one call.
pub(crate) struct Scorer {
    workload: Arc<Workload>,
    /// Samples of a window.
    window_samples: usize,
    /// The first utterance without an answer.
    next_unanswered: usize,
    /// The first utterance that has not started.
    next_unsaid: usize,
    /// End of the last loud window.
    last_sound_end: f64,
    levels: [f32; LEVEL_WINDOWS],
    interruption: Option<Interruption>,
    /// Since when no video frame has arrived while the agent speaks; `None` = this freeze is
    /// counted.
    no_frame_since: Option<f64>,
    /// Number of video frames since the last loud window.
    uncertain_frames: u64,
    /// Answers to utterances that end after this are not judged: the caller has left.
    judge_until: f64,
    /// The scores so far.
    pub(crate) scores: Scores,
}

impl Scorer {
    /// A scorer for a call with audio at `rate` Hz.
    #[must_use]
    pub(crate) fn new(workload: Arc<Workload>, rate: usize) -> Self {
        Self {
            workload,
            window_samples: rate / 200,
            next_unanswered: 0,
            next_unsaid: 0,
            last_sound_end: f64::NEG_INFINITY,
            levels: [0.0; LEVEL_WINDOWS],
            interruption: None,
            no_frame_since: None,
            uncertain_frames: 0,
            judge_until: f64::INFINITY,
            scores: Scores::default(),
        }
    }

    /// The caller says nothing after `until`.
    pub(crate) fn set_end(&mut self, until: f64) {
        self.judge_until = until;
    }

    /// Whether the agent speaks at `at`.
    #[must_use]
    pub(crate) fn is_speaking(&self, at: f64) -> bool {
        at - self.last_sound_end < MIN_SILENCE
    }

    /// Records a video frame.
    pub(crate) fn record_frame(&mut self, at: f64) {
        // A frame after the last loud window counts only if the speech continues.
        if at < self.last_sound_end {
            self.scores.frames += 1;
        } else if self.is_speaking(at) {
            self.uncertain_frames += 1;
        }
        self.no_frame_since = Some(at);
    }

    /// Processes an audio frame that was delivered at `at`, which is the time of its first sample.
    pub(crate) fn process_audio(&mut self, at: f64, pcm: &[i16]) {
        let quiet = pcm.iter().all(|s| s.unsigned_abs() < LOUD_RMS as u16);
        for (i, window) in pcm.chunks_exact(self.window_samples).enumerate() {
            let from = at + i as f64 * WINDOW_SECONDS;
            self.start_utterances(from);
            let level = if quiet { 0.0 } else { rms(window) };
            if level >= LOUD_RMS {
                self.on_loud_window(at, from, level)
            } else {
                self.on_quiet_window(from + WINDOW_SECONDS)
            }
        }
    }

    /// Starts the utterances that are due. A barge-in utterance that starts while the agent speaks
    /// is an interruption.
    fn start_utterances(&mut self, now: f64) {
        loop {
            let utterance = self.workload.spoken_utterance(self.next_unsaid);
            if utterance.onset > now || utterance.end > self.judge_until {
                return;
            }
            self.next_unsaid += 1;
            if utterance.utterance.barge_in
                && self.last_sound_end >= utterance.onset - 2.0 * WINDOW_SECONDS
            {
                let sounding: Vec<f32> = self.levels.iter().copied().filter(|l| *l > 0.0).collect();
                let level = sounding.iter().sum::<f32>() / sounding.len().max(1) as f32;
                self.interruption =
                    Some(Interruption { onset: utterance.onset, level, ducked: false });
            }
        }
    }

    fn on_loud_window(&mut self, handed_out: f64, from: f64, level: f32) {
        if from - self.last_sound_end >= MIN_SILENCE {
            self.on_answer(handed_out);
            // Before this, no motion was needed.
            self.no_frame_since = Some(from);
        }
        if self.no_frame_since.is_some_and(|since| from + WINDOW_SECONDS - since > FREEZE_THRESHOLD)
        {
            self.no_frame_since = None;
            self.scores.freezes += 1;
        }
        let continues = from - self.last_sound_end < MIN_SILENCE;
        let uncertain = std::mem::take(&mut self.uncertain_frames);
        if continues {
            self.scores.frames += uncertain;
            self.scores.speaking_seconds += (from - self.last_sound_end).max(0.0);
        }
        self.scores.speaking_seconds += WINDOW_SECONDS;
        self.last_sound_end = from + WINDOW_SECONDS;
        if let Some(interruption) = &mut self.interruption {
            if !interruption.ducked && level < DUCK_RATIO * interruption.level {
                interruption.ducked = true;
                self.scores.duck.push(from - interruption.onset);
            }
        } else {
            self.levels.rotate_left(1);
            self.levels[LEVEL_WINDOWS - 1] = level;
        }
    }

    fn on_quiet_window(&mut self, until: f64) {
        if until - self.last_sound_end < MIN_SILENCE - WINDOW_SECONDS / 2.0 {
            return;
        }
        self.levels = [0.0; LEVEL_WINDOWS];
        if let Some(interruption) = self.interruption.take() {
            let silent = self.last_sound_end - interruption.onset;
            self.scores.barge_in.push(silent);
            if !interruption.ducked {
                self.scores.duck.push(silent);
            }
        }
    }

    /// The agent started to speak at `at`. This answers the last utterance that was over by then,
    /// unless that one already has an answer.
    fn on_answer(&mut self, at: f64) {
        let mut answered = None;
        while self.workload.spoken_utterance(self.next_unanswered).end <= at {
            self.scores.unanswered += usize::from(self.is_judged(answered));
            answered = Some(self.next_unanswered);
            self.next_unanswered += 1;
        }
        let Some(answered) = answered else { return };
        let utterance = self.workload.spoken_utterance(answered);
        if utterance.end <= self.judge_until {
            let took = at - utterance.end;
            self.scores.voice_to_voice.push(took);
            self.scores.overhead.push(took - self.workload.ideal_response_time(utterance.index));
        }
    }
}

/// Evaluation at the end of the call.
impl Scorer {
    /// Whether an utterance ended early enough to be judged.
    fn is_judged(&self, utterance: Option<usize>) -> bool {
        utterance.is_some_and(|n| self.workload.spoken_utterance(n).end <= self.judge_until)
    }

    /// Returns the scores. Utterances without an answer are now unanswered. `until`: the end of the
    /// call's audio, minus the time that an answer may take.
    pub(crate) fn finish(&mut self, until: f64) -> Scores {
        self.judge_until = self.judge_until.min(until);
        while self.is_judged(Some(self.next_unanswered)) {
            self.scores.unanswered += 1;
            self.next_unanswered += 1;
        }
        std::mem::take(&mut self.scores)
    }
}

fn rms(pcm: &[i16]) -> f32 {
    let power: f32 = pcm.iter().map(|s| f32::from(*s) * f32::from(*s)).sum();
    (power / pcm.len() as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: usize = 48_000;

    /// Scores of agent audio given as (from, to, amplitude) in s. It is delivered for `length` s in
    /// frames of 20 ms that start at `phase`.
    fn score_sounds(sounds: &[(f64, f64, f64)], phase: f64, length: f64) -> Scores {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        scorer.set_end(length);
        for frame in 0..(length / 0.02) as usize {
            let at = phase + frame as f64 * 0.02;
            let pcm: Vec<i16> = (0..RATE / 50)
                .map(|i| {
                    let t = at + i as f64 / RATE as f64;
                    let amplitude =
                        sounds.iter().find(|s| s.0 <= t && t < s.1).map_or(0.0, |s| s.2);
                    (amplitude * (t * 220.0 * std::f64::consts::TAU).sin()) as i16
                })
                .collect();
            scorer.process_audio(at, &pcm);
        }
        scorer.finish(length)
    }

    fn assert_close(found: &[f64], expected: &[f64], within: f64) {
        assert_eq!(found.len(), expected.len(), "{found:?} instead of {expected:?}");
        for (f, w) in found.iter().zip(expected) {
            assert!((f - w).abs() <= within, "{found:?} instead of {expected:?}");
        }
    }

    #[test]
    fn an_answer_is_found_at_the_frame_that_holds_its_first_sound() {
        // The first utterance ends at 3.1 s.
        let scores = score_sounds(&[(4.025, 5.0, 8000.0)], 0.0, 6.0);
        assert_close(&scores.voice_to_voice, &[0.92], 1e-9);
        assert_close(&scores.overhead, &[0.02], 1e-9);
        assert!(scores.barge_in.is_empty() && scores.duck.is_empty());
        assert!((scores.speaking_seconds - 0.975).abs() < 0.011, "{}", scores.speaking_seconds);
    }

    #[test]
    fn pictures_are_counted_while_the_agent_speaks_and_not_behind_it() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), 48_000);
        // Two intervals of speech of 2 s each, and exactly 25 frames per second all the time.
        for n in 0..300u32 {
            let at = f64::from(n) * 0.02;
            let sounds = (1.0..3.0).contains(&at) || (4.0..6.0).contains(&at);
            scorer.process_audio(at, &[if sounds { 8000 } else { 0 }; 960]);
            if n % 2 == 0 {
                scorer.record_frame(at + 0.019);
            }
        }
        let rate = scorer.scores.frames as f64 / scorer.scores.speaking_seconds;
        assert!((rate - 25.0).abs() < 0.3, "{rate}");
    }

    #[test]
    fn an_interruption_is_timed_from_its_true_onset_to_the_last_sound() {
        // The second utterance starts at 6.1 s, over the first answer. The agent ducks .12 s later
        // and is silent .26 s later.
        let sounds = [(4.0, 6.22, 8000.0), (6.22, 6.36, 2000.0), (9.32, 10.5, 8000.0)];
        let scores = score_sounds(&sounds, 0.003, 11.0);
        assert_close(&scores.duck, &[0.12], 0.0051);
        assert_close(&scores.barge_in, &[0.26], 0.0051);
        assert_close(&scores.voice_to_voice, &[0.883, 0.853], 1e-9);
    }

    #[test]
    fn an_agent_that_stops_without_ducking_is_as_slow_to_duck_as_to_stop() {
        let scores = score_sounds(&[(4.0, 6.4, 8000.0)], 0.0, 9.0);
        assert_close(&scores.duck, &scores.barge_in, 1e-9);
        assert_close(&scores.barge_in, &[0.3], 0.0051);
    }

    #[test]
    fn an_agent_that_has_finished_is_not_interrupted() {
        let scores = score_sounds(&[(4.0, 6.0, 8000.0)], 0.0, 9.0);
        assert!(scores.barge_in.is_empty() && scores.duck.is_empty());
    }

    #[test]
    fn a_gap_in_an_answer_starts_no_second_answer() {
        let scores = score_sounds(
            &[(4.0, 4.5, 8000.0), (4.8, 5.0, 8000.0), (14.5, 15.0, 8000.0)],
            0.0,
            16.0,
        );
        // Nothing answers the second utterance; the third ends at 13.53 s.
        assert_close(&scores.voice_to_voice, &[0.9, 0.96], 0.0101);
        assert_eq!(scores.unanswered, 1);
    }

    #[test]
    fn an_agent_that_never_speaks_answers_nothing() {
        // Utterances end at 3.1, 8.45 and 13.53 s.
        assert_eq!(score_sounds(&[], 0.0, 12.0).unanswered, 2);
        assert_eq!(score_sounds(&[(4.0, 4.5, 8000.0)], 0.0, 12.0).unanswered, 1);
    }

    #[test]
    fn turns_after_the_caller_hung_up_are_not_scored() {
        assert!(score_sounds(&[(3.12, 3.2, 8000.0)], 0.0, 3.05).voice_to_voice.is_empty());
    }

    #[test]
    fn a_face_freezes_only_while_the_agent_sounds_and_once_a_freeze() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        let loud = |scorer: &mut Scorer, from: u32, to: u32| {
            for n in from..to {
                scorer.process_audio(f64::from(n) * 0.02, &[8000; 960]);
            }
        };
        scorer.record_frame(0.1);
        loud(&mut scorer, 50, 60); // .2 s, after a second without a picture
        assert_eq!(scorer.scores.freezes, 0);
        loud(&mut scorer, 60, 100);
        assert_eq!(scorer.scores.freezes, 1);
        scorer.record_frame(2.0);
        loud(&mut scorer, 100, 109);
        assert_eq!(scorer.scores.freezes, 1);
        loud(&mut scorer, 109, 112);
        assert_eq!(scorer.scores.freezes, 2);
    }

    #[test]
    fn pictures_count_while_the_agent_sounds() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        scorer.process_audio(1.0, &[8000; 960]);
        scorer.record_frame(1.01);
        scorer.record_frame(1.2);
        assert_eq!(scorer.scores.frames, 1);
    }
}
