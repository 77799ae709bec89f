//! The audio of the utterances that have no final transcript, oldest first.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::time::Instant;

use super::{BYTES_PER_SECOND, Command};

/// Maximum size of the audio: 30 s. Beyond it, the oldest audio is dropped.
const MAX_BUFFERED_BYTES: usize = 30 * BYTES_PER_SECOND;

/// An utterance.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// Samples as on the wire, in order. Their beginning is missing if the buffer was full.
    pub(super) audio: VecDeque<Bytes>,
    /// Whether the end of speech was reported.
    pub(super) ended: bool,
}

/// The utterances that a new connection, or another STT, must get.
#[derive(Debug, Default)]
pub(super) struct SpeechBuffer {
    utterances: VecDeque<Speech>,
    bytes: usize,
    /// Since when it is not empty.
    filled_since: Option<Instant>,
}

impl SpeechBuffer {
    /// Adds a command of the media side.
    pub(super) fn push(&mut self, now: Instant, command: &Command) {
        match command {
            Command::StartSpeech => {
                self.filled_since.get_or_insert(now);
                self.utterances.push_back(Speech::default());
            }
            Command::Audio(chunk) => {
                if let Some(current) = self.utterances.back_mut() {
                    current.audio.push_back(chunk.clone());
                    self.bytes += chunk.len();
                    self.drop_excess();
                }
            }
            Command::EndSpeech => {
                if let Some(current) = self.utterances.back_mut() {
                    current.ended = true;
                }
            }
        }
    }

    fn drop_excess(&mut self) {
        while self.bytes > MAX_BUFFERED_BYTES {
            let oldest = self.utterances.iter_mut().find_map(|speech| speech.audio.pop_front());
            let Some(chunk) = oldest else { return };
            self.bytes -= chunk.len();
        }
    }

    /// Removes the oldest utterance: it has its final transcript.
    pub(super) fn pop(&mut self, now: Instant) {
        if let Some(speech) = self.utterances.pop_front() {
            self.bytes -= speech.audio.iter().map(Bytes::len).sum::<usize>();
        }
        self.filled_since = (!self.utterances.is_empty()).then_some(now);
    }

    /// Removes the utterances that have ended.
    pub(super) fn drop_ended(&mut self, now: Instant) {
        while self.utterances.front().is_some_and(|speech| speech.ended) {
            self.pop(now);
        }
    }

    /// Removes everything.
    pub(super) fn take(&mut self) -> VecDeque<Speech> {
        self.bytes = 0;
        self.filled_since = None;
        std::mem::take(&mut self.utterances)
    }

    /// The utterances, oldest first.
    pub(super) fn utterances(&self) -> impl Iterator<Item = &Speech> {
        self.utterances.iter()
    }

    /// Since when audio waits for a transcript; `None` without an utterance.
    pub(super) fn filled_since(&self) -> Option<Instant> {
        self.filled_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(buffer: &SpeechBuffer) -> Vec<(usize, bool)> {
        let length = |speech: &Speech| speech.audio.iter().map(Bytes::len).sum();
        buffer.utterances().map(|speech| (length(speech), speech.ended)).collect()
    }

    #[test]
    fn audio_is_stored_until_the_final_transcript_and_at_most_30_s_of_it() {
        let now = Instant::now();
        let mut buffer = SpeechBuffer::default();
        let second = || Command::Audio(vec![1; BYTES_PER_SECOND].into());
        buffer.push(now, &second());
        assert_eq!((lengths(&buffer), buffer.filled_since()), (vec![], None), "no speech yet");
        for seconds in [2, 20] {
            buffer.push(now, &Command::StartSpeech);
            (0..seconds).for_each(|_| buffer.push(now, &second()));
            buffer.push(now, &Command::EndSpeech);
        }
        buffer.push(now, &Command::StartSpeech);
        (0..9).for_each(|_| buffer.push(now, &second()));
        let seconds = |n: usize| n * BYTES_PER_SECOND;
        let expected = vec![(seconds(1), true), (seconds(20), true), (seconds(9), false)];
        assert_eq!(lengths(&buffer), expected);
        assert_eq!(buffer.filled_since(), Some(now));
        buffer.pop(now);
        assert_eq!(lengths(&buffer), expected[1..]);
        buffer.push(now, &Command::StartSpeech);
        buffer.drop_ended(now);
        assert_eq!(lengths(&buffer), [(seconds(9), false), (0, false)]);
        assert_eq!(buffer.take().len(), 2);
        assert_eq!((buffer.bytes, buffer.filled_since()), (0, None));
    }
}
