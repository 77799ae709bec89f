//! The input of the STT: the user's speech with half a second before it, nothing else.

use std::collections::VecDeque;

use models::stt::SttStream;

/// Samples buffered from before the detector's report: .5 s at 16 kHz. The report comes some .1 s
/// after the onset; the rest covers soft onsets.
const PRE_ROLL_SAMPLES: usize = 8_000;
/// Samples buffered while the start of speech is delayed: 1.25 s.
const LONG_PRE_ROLL_SAMPLES: usize = 20_000;
/// Samples of the pre-roll that are muted: .5 s, over which the agent's own voice is recognized.
const MUTED_SAMPLES: usize = 8_000;

/// The STT input of one call.
pub struct SttInput {
    /// `None` after the end of the call.
    stream: Option<Box<dyn SttStream>>,
    pre_roll: VecDeque<i16>,
    max_pre_roll: usize,
    in_speech: bool,
    /// Samples sent to the STT.
    samples_sent: u64,
}

impl SttInput {
    /// An input that sends to `stream`.
    #[must_use]
    pub fn new(stream: Box<dyn SttStream>) -> Self {
        Self {
            stream: Some(stream),
            pre_roll: VecDeque::with_capacity(PRE_ROLL_SAMPLES + 512),
            max_pre_roll: PRE_ROLL_SAMPLES,
            in_speech: false,
            samples_sent: 0,
        }
    }

    /// The call has started.
    pub fn start_call(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.start_call();
        }
    }

    /// The call has ended: the stream is closed. Later audio is ignored.
    pub fn end_call(&mut self) {
        self.stream = None;
    }

    /// Takes the user's audio, 16 kHz mono, with or without speech.
    pub fn push_audio(&mut self, pcm: &[i16]) {
        let Some(stream) = &mut self.stream else { return };
        if self.in_speech {
            self.samples_sent += pcm.len() as u64;
            stream.push_audio(pcm);
        } else {
            let surplus = (self.pre_roll.len() + pcm.len()).saturating_sub(self.max_pre_roll);
            self.pre_roll.drain(..surplus.min(self.pre_roll.len()));
            self.pre_roll.extend(pcm);
        }
    }

    /// The detector reports speech: the STT gets the buffered audio before it and all that follows.
    pub fn start_speech(&mut self) {
        if self.in_speech {
            return;
        }
        let Some(stream) = &mut self.stream else { return };
        (self.in_speech, self.max_pre_roll) = (true, PRE_ROLL_SAMPLES);
        stream.start_speech();
        self.samples_sent += self.pre_roll.len() as u64;
        let (a, b) = self.pre_roll.as_slices();
        if !a.is_empty() {
            stream.push_audio(a);
        }
        if !b.is_empty() {
            stream.push_audio(b);
        }
        self.pre_roll.clear();
    }

    /// The start of speech is delayed: no audio since it may be lost meanwhile.
    pub fn keep_pre_roll(&mut self) {
        self.max_pre_roll = LONG_PRE_ROLL_SAMPLES;
        self.pre_roll.reserve(LONG_PRE_ROLL_SAMPLES);
    }

    /// The delayed speech is none. What was buffered is dropped.
    pub fn drop_pre_roll(&mut self) {
        self.max_pre_roll = PRE_ROLL_SAMPLES;
        self.pre_roll.clear();
    }

    /// Replaces the end of the buffered audio by silence.
    pub fn mute_pre_roll(&mut self) {
        self.pre_roll.iter_mut().rev().take(MUTED_SAMPLES).for_each(|sample| *sample = 0);
    }

    /// Puts samples back that were replaced by silence: the last ones of the buffered audio.
    pub fn restore_pre_roll(&mut self, tail: &VecDeque<i16>) {
        for (sample, original) in self.pre_roll.iter_mut().rev().zip(tail.iter().rev()) {
            *sample = *original;
        }
    }

    /// The detector reports the end of speech.
    pub fn end_speech(&mut self) {
        if std::mem::take(&mut self.in_speech)
            && let Some(stream) = &mut self.stream
        {
            stream.end_speech();
        }
    }

    /// Seconds of audio sent to the STT.
    #[must_use]
    pub fn seconds_sent(&self) -> f64 {
        self.samples_sent as f64 / 16_000.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct RecordingStream(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<i16>>>);

    impl SttStream for RecordingStream {
        fn start_speech(&mut self) {
            self.0.lock().unwrap().push("begin".into());
        }
        fn push_audio(&mut self, pcm: &[i16]) {
            self.1.lock().unwrap().extend(pcm);
        }
        fn end_speech(&mut self) {
            self.0.lock().unwrap().push("end".into());
        }
    }

    #[test]
    fn speech_begins_half_a_second_early_and_silence_is_never_given() {
        let recording = RecordingStream::default();
        let mut stt_input = SttInput::new(Box::new(recording.clone()));
        let sound: Vec<i16> = (0..20_000).collect();
        for part in sound.chunks(320) {
            stt_input.push_audio(part);
        }
        stt_input.start_speech();
        stt_input.start_speech();
        stt_input.push_audio(&[1, 2, 3]);
        stt_input.end_speech();
        stt_input.push_audio(&[4; 320]);
        stt_input.end_call();
        stt_input.push_audio(&[5; 320]);
        stt_input.start_speech();
        stt_input.end_speech();
        let received = recording.1.lock().unwrap();
        assert_eq!(received.len(), PRE_ROLL_SAMPLES + 3);
        assert_eq!(received[..PRE_ROLL_SAMPLES], sound[20_000 - PRE_ROLL_SAMPLES..]);
        assert_eq!(*recording.0.lock().unwrap(), ["begin", "end"]);
    }
}
