//! Compares what a caller receives with what it said. The agent's audio is analysed in windows of 5
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
const LOUD: f32 = 184.0;
/// Length of a window, in s.
const WINDOW: f64 = 0.005;
/// Minimum duration of silence, in s: shorter than any pause between two replies, longer than the
/// gaps within speech.
const SILENCE: f64 = 0.1;
/// A window below this share of the previous level is ducked: −6 dB, halfway to the −12 dB of
/// ducking.
const DUCKED: f32 = 0.5;
/// A longer time without a video frame while the agent speaks is a freeze, in s. An avatar that
/// only listens may stand still, and then no frame is sent.
const FREEZE: f64 = 0.2;
/// Number of windows over which the level before an interruption is measured.
const BEFORE: usize = 20;

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
    pub(crate) speaking: f64,
    /// Number of video frames received while it spoke.
    pub(crate) pictures: u64,
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
    window: usize,
    /// The first utterance without an answer.
    unanswered: usize,
    /// The first utterance that has not started.
    unsaid: usize,
    /// End of the last loud window.
    sounded: f64,
    levels: [f32; BEFORE],
    interruption: Option<Interruption>,
    /// Since when no video frame has arrived while the agent speaks; `None` = this freeze is
    /// counted.
    still: Option<f64>,
    /// Number of video frames since the last loud window.
    unsure: u64,
    /// Answers to utterances that end after this are not judged: the caller has left.
    until: f64,
    /// The scores so far.
    pub(crate) scores: Scores,
}

impl Scorer {
    /// A scorer for a call with audio at `rate` Hz.
    #[must_use]
    pub(crate) fn new(workload: Arc<Workload>, rate: usize) -> Self {
        Self {
            workload,
            window: rate / 200,
            unanswered: 0,
            unsaid: 0,
            sounded: f64::NEG_INFINITY,
            levels: [0.0; BEFORE],
            interruption: None,
            still: None,
            unsure: 0,
            until: f64::INFINITY,
            scores: Scores::default(),
        }
    }

    /// The caller says nothing after `until`.
    pub(crate) fn end(&mut self, until: f64) {
        self.until = until;
    }

    /// Whether the agent speaks at `at`.
    #[must_use]
    pub(crate) fn sounds(&self, at: f64) -> bool {
        at - self.sounded < SILENCE
    }

    /// Records a video frame.
    pub(crate) fn picture(&mut self, at: f64) {
        // A frame after the last loud window counts only if the speech continues.
        if at < self.sounded {
            self.scores.pictures += 1;
        } else if self.sounds(at) {
            self.unsure += 1;
        }
        self.still = Some(at);
    }

    /// Processes an audio frame that was delivered at `at`, which is the time of its first sample.
    pub(crate) fn frame(&mut self, at: f64, pcm: &[i16]) {
        let quiet = pcm.iter().all(|s| s.unsigned_abs() < LOUD as u16);
        for (i, window) in pcm.chunks_exact(self.window).enumerate() {
            let from = at + i as f64 * WINDOW;
            self.begin(from);
            let level = if quiet { 0.0 } else { rms(window) };
            if level >= LOUD { self.loud(at, from, level) } else { self.quiet(from + WINDOW) }
        }
    }

    /// Starts the utterances that are due. A barge-in utterance that starts while the agent speaks
    /// is an interruption.
    fn begin(&mut self, now: f64) {
        loop {
            let said = self.workload.said(self.unsaid);
            if said.onset > now || said.end > self.until {
                return;
            }
            self.unsaid += 1;
            if said.utterance.barge_in && self.sounded >= said.onset - 2.0 * WINDOW {
                let sounding: Vec<f32> = self.levels.iter().copied().filter(|l| *l > 0.0).collect();
                let level = sounding.iter().sum::<f32>() / sounding.len().max(1) as f32;
                self.interruption = Some(Interruption { onset: said.onset, level, ducked: false });
            }
        }
    }

    fn loud(&mut self, handed_out: f64, from: f64, level: f32) {
        if from - self.sounded >= SILENCE {
            self.answered(handed_out);
            // Before this, no motion was needed.
            self.still = Some(from);
        }
        if self.still.is_some_and(|since| from + WINDOW - since > FREEZE) {
            self.still = None;
            self.scores.freezes += 1;
        }
        let goes_on = from - self.sounded < SILENCE;
        let unsure = std::mem::take(&mut self.unsure);
        if goes_on {
            self.scores.pictures += unsure;
            self.scores.speaking += (from - self.sounded).max(0.0);
        }
        self.scores.speaking += WINDOW;
        self.sounded = from + WINDOW;
        if let Some(cut) = &mut self.interruption {
            if !cut.ducked && level < DUCKED * cut.level {
                cut.ducked = true;
                self.scores.duck.push(from - cut.onset);
            }
        } else {
            self.levels.rotate_left(1);
            self.levels[BEFORE - 1] = level;
        }
    }

    fn quiet(&mut self, until: f64) {
        if until - self.sounded < SILENCE - WINDOW / 2.0 {
            return;
        }
        self.levels = [0.0; BEFORE];
        if let Some(cut) = self.interruption.take() {
            let silent = self.sounded - cut.onset;
            self.scores.barge_in.push(silent);
            if !cut.ducked {
                self.scores.duck.push(silent);
            }
        }
    }

    /// The agent started to speak at `at`. This answers the last utterance that was over by then,
    /// unless that one already has an answer.
    fn answered(&mut self, at: f64) {
        let mut answered = None;
        while self.workload.said(self.unanswered).end <= at {
            self.scores.unanswered += usize::from(self.counts(answered));
            answered = Some(self.unanswered);
            self.unanswered += 1;
        }
        let Some(answered) = answered else { return };
        let said = self.workload.said(answered);
        if said.end <= self.until {
            let took = at - said.end;
            self.scores.voice_to_voice.push(took);
            self.scores.overhead.push(took - self.workload.ideal(said.number));
        }
    }
}

/// Evaluation at the end of the call.
impl Scorer {
    /// Whether an utterance ended early enough to be judged.
    fn counts(&self, utterance: Option<usize>) -> bool {
        utterance.is_some_and(|n| self.workload.said(n).end <= self.until)
    }

    /// Returns the scores. Utterances without an answer are now unanswered. `until`: the end of the
    /// call's audio, minus the time that an answer may take.
    pub(crate) fn finish(&mut self, until: f64) -> Scores {
        self.until = self.until.min(until);
        while self.counts(Some(self.unanswered)) {
            self.scores.unanswered += 1;
            self.unanswered += 1;
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
    fn heard(sounds: &[(f64, f64, f64)], phase: f64, length: f64) -> Scores {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        scorer.end(length);
        for frame in 0..(length / 0.02) as usize {
            let at = phase + frame as f64 * 0.02;
            let pcm: Vec<i16> = (0..RATE / 50)
                .map(|i| {
                    let t = at + i as f64 / RATE as f64;
                    let amplitude = sounds.iter().find(|s| s.0 <= t && t < s.1).map_or(0.0, |s| s.2);
                    (amplitude * (t * 220.0 * std::f64::consts::TAU).sin()) as i16
                })
                .collect();
            scorer.frame(at, &pcm);
        }
        scorer.finish(length)
    }

    fn close(found: &[f64], wanted: &[f64], within: f64) {
        assert_eq!(found.len(), wanted.len(), "{found:?} instead of {wanted:?}");
        for (f, w) in found.iter().zip(wanted) {
            assert!((f - w).abs() <= within, "{found:?} instead of {wanted:?}");
        }
    }

    #[test]
    fn an_answer_is_found_at_the_frame_that_holds_its_first_sound() {
        // The first utterance ends at 3.1 s.
        let scores = heard(&[(4.025, 5.0, 8000.0)], 0.0, 6.0);
        close(&scores.voice_to_voice, &[0.92], 1e-9);
        close(&scores.overhead, &[0.02], 1e-9);
        assert!(scores.barge_in.is_empty() && scores.duck.is_empty());
        assert!((scores.speaking - 0.975).abs() < 0.011, "{}", scores.speaking);
    }

    #[test]
    fn pictures_are_counted_while_the_agent_speaks_and_not_behind_it() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), 48_000);
        // Two intervals of speech of 2 s each, and exactly 25 frames per second all the time.
        for n in 0..300u32 {
            let at = f64::from(n) * 0.02;
            let sounds = (1.0..3.0).contains(&at) || (4.0..6.0).contains(&at);
            scorer.frame(at, &[if sounds { 8000 } else { 0 }; 960]);
            if n % 2 == 0 {
                scorer.picture(at + 0.019);
            }
        }
        let rate = scorer.scores.pictures as f64 / scorer.scores.speaking;
        assert!((rate - 25.0).abs() < 0.3, "{rate}");
    }

    #[test]
    fn an_interruption_is_timed_from_its_true_onset_to_the_last_sound() {
        // The second utterance starts at 6.1 s, over the first answer. The agent ducks .12 s later
        // and is silent .26 s later.
        let sounds = [(4.0, 6.22, 8000.0), (6.22, 6.36, 2000.0), (9.32, 10.5, 8000.0)];
        let scores = heard(&sounds, 0.003, 11.0);
        close(&scores.duck, &[0.12], 0.0051);
        close(&scores.barge_in, &[0.26], 0.0051);
        close(&scores.voice_to_voice, &[0.883, 0.853], 1e-9);
    }

    #[test]
    fn an_agent_that_stops_without_ducking_is_as_slow_to_duck_as_to_stop() {
        let scores = heard(&[(4.0, 6.4, 8000.0)], 0.0, 9.0);
        close(&scores.duck, &scores.barge_in, 1e-9);
        close(&scores.barge_in, &[0.3], 0.0051);
    }

    #[test]
    fn an_agent_that_has_finished_is_not_interrupted() {
        let scores = heard(&[(4.0, 6.0, 8000.0)], 0.0, 9.0);
        assert!(scores.barge_in.is_empty() && scores.duck.is_empty());
    }

    #[test]
    fn a_hole_in_an_answer_is_no_second_answer_and_a_missing_one_is_not_made_up() {
        let scores = heard(&[(4.0, 4.5, 8000.0), (4.8, 5.0, 8000.0), (14.5, 15.0, 8000.0)], 0.0, 16.0);
        // Nothing answers the second utterance; the third ends at 13.53 s.
        close(&scores.voice_to_voice, &[0.9, 0.96], 0.0101);
        assert_eq!(scores.unanswered, 1);
    }

    #[test]
    fn an_agent_that_never_speaks_answers_nothing() {
        // Utterances end at 3.1, 8.45 and 13.53 s.
        assert_eq!(heard(&[], 0.0, 12.0).unanswered, 2);
        assert_eq!(heard(&[(4.0, 4.5, 8000.0)], 0.0, 12.0).unanswered, 1);
    }

    #[test]
    fn what_the_caller_did_not_stay_for_is_not_judged() {
        assert!(heard(&[(3.12, 3.2, 8000.0)], 0.0, 3.05).voice_to_voice.is_empty());
    }

    #[test]
    fn a_face_freezes_only_while_the_agent_sounds_and_once_a_freeze() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        let loud = |scorer: &mut Scorer, from: u32, to: u32| {
            for n in from..to {
                scorer.frame(f64::from(n) * 0.02, &[8000; 960]);
            }
        };
        scorer.picture(0.1);
        loud(&mut scorer, 50, 60); // .2 s, after a second without a picture
        assert_eq!(scorer.scores.freezes, 0);
        loud(&mut scorer, 60, 100);
        assert_eq!(scorer.scores.freezes, 1);
        scorer.picture(2.0);
        loud(&mut scorer, 100, 109);
        assert_eq!(scorer.scores.freezes, 1);
        loud(&mut scorer, 109, 112);
        assert_eq!(scorer.scores.freezes, 2);
    }

    #[test]
    fn pictures_count_while_the_agent_sounds() {
        let mut scorer = Scorer::new(Arc::new(Workload::built_in().unwrap()), RATE);
        scorer.frame(1.0, &[8000; 960]);
        scorer.picture(1.01);
        scorer.picture(1.2);
        assert_eq!(scorer.scores.pictures, 1);
    }
}
