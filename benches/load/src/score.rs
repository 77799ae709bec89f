//! What a caller heard, set against what it said: the agent's sound in windows of 5 ms, on the caller's own clock.

use std::sync::Arc;

use crate::workload::Workload;

/// RMS over which a window sounds: −45 dBFS, as the recording's own ends were found.
const LOUD: f32 = 184.0;
/// Length of a window in s.
const WINDOW: f64 = 0.005;
/// Quiet for this long is silence, in s: shorter than any pause between two answers, longer than the holes of a voice.
const SILENCE: f64 = 0.1;
/// A window below this share of the level before it is ducked: −6 dB, half-way of the −12 dB that ducking means.
const DUCKED: f32 = 0.5;
/// No picture for longer while the agent sounds is a freeze, in s. A face that only listens may hold still, and then no picture is sent.
const FREEZE: f64 = 0.2;
/// Windows from which the level before an interruption is taken.
const BEFORE: usize = 20;

/// One call's figures; times in s.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    /// True end of an utterance → the first frame of the answer's sound was handed out.
    pub(crate) voice_to_voice: Vec<f64>,
    /// The same, less what an ideal engine would need.
    pub(crate) overhead: Vec<f64>,
    /// True onset of an interruption → end of the last sound before silence.
    pub(crate) barge_in: Vec<f64>,
    /// True onset of an interruption → the agent is half as loud, or silent.
    pub(crate) duck: Vec<f64>,
    /// Utterances that nothing answered.
    pub(crate) unanswered: usize,
    /// How long the agent sounded.
    pub(crate) speaking: f64,
    /// Pictures that came while it sounded.
    pub(crate) pictures: u64,
    /// Times over .2 s without one while it sounded.
    pub(crate) freezes: u64,
}

/// An interruption under way.
struct Interruption {
    onset: f64,
    level: f32,
    ducked: bool,
}

/// Listens to one call.
pub(crate) struct Scorer {
    workload: Arc<Workload>,
    /// Samples of a window.
    window: usize,
    /// The first utterance that nothing answered yet.
    unanswered: usize,
    /// The first utterance that has not begun.
    unsaid: usize,
    /// End of the last window that sounded.
    sounded: f64,
    levels: [f32; BEFORE],
    interruption: Option<Interruption>,
    /// Since when no picture has come while the agent sounds; `None` = that freeze is counted.
    still: Option<f64>,
    /// Pictures since the last sound.
    unsure: u64,
    /// Answers to utterances that end after this are not judged: the caller has left.
    until: f64,
    /// What came out.
    pub(crate) scores: Scores,
}

impl Scorer {
    /// Of a call whose sound comes at `rate` Hz.
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

    /// Whether the agent sounds at `at`.
    #[must_use]
    pub(crate) fn sounds(&self, at: f64) -> bool {
        at - self.sounded < SILENCE
    }

    /// A picture came.
    pub(crate) fn picture(&mut self, at: f64) {
        // One behind the last sound so far belongs to the speech only if that goes on.
        if at < self.sounded {
            self.scores.pictures += 1;
        } else if self.sounds(at) {
            self.unsure += 1;
        }
        self.still = Some(at);
    }

    /// A frame of sound was handed out at `at`: its first sample is heard then.
    pub(crate) fn frame(&mut self, at: f64, pcm: &[i16]) {
        let quiet = pcm.iter().all(|s| s.unsigned_abs() < LOUD as u16);
        for (i, window) in pcm.chunks_exact(self.window).enumerate() {
            let from = at + i as f64 * WINDOW;
            self.begin(from);
            let level = if quiet { 0.0 } else { rms(window) };
            if level >= LOUD { self.loud(at, from, level) } else { self.quiet(from + WINDOW) }
        }
    }

    /// Utterances that have begun by now; an interruption is one that begins while the agent sounds.
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
            // Until now nothing needed to move.
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

    /// Sound began at `at`: it answers the last utterance that was over by then, unless that one has its answer.
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

/// What was found once the call is over.
impl Scorer {
    /// Whether an utterance was said early enough to be judged.
    fn counts(&self, utterance: Option<usize>) -> bool {
        utterance.is_some_and(|n| self.workload.said(n).end <= self.until)
    }

    /// What was scored; what nothing answered is missed from now on. The call's sound ended at `until` less the time that an answer may take.
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

    /// The agent's sound as (from, to, amplitude) in s, in frames of 20 ms that begin at `phase`, for `length` s.
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
        // Two stretches of 2 s, pictures at exactly 25 a second all the time.
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
        // The second utterance begins at 6.1 s over the first answer: ducked .12 s later, silent .26 s later.
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
