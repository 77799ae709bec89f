//! The audio of the utterances that have no final transcript, oldest first.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::time::Instant;

use super::Command;

/// An utterance.
#[derive(Debug, Default)]
pub(in crate::stt) struct Speech {
    /// Samples as on the wire, in order. Their beginning is missing if the buffer was full.
    pub(in crate::stt) audio: VecDeque<Bytes>,
    /// Whether the end of speech was reported.
    pub(in crate::stt) ended: bool,
}

/// The utterances that a new connection, or another STT, must get.
#[derive(Debug)]
pub(in crate::stt) struct SpeechBuffer {
    /// Maximum size of the audio. Beyond it, the oldest audio is dropped.
    max_bytes: usize,
    utterances: VecDeque<Speech>,
    bytes: usize,
    /// Since when it is not empty.
    filled_since: Option<Instant>,
}

impl SpeechBuffer {
    pub(in crate::stt) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, utterances: VecDeque::new(), bytes: 0, filled_since: None }
    }

    /// Adds a command of the media side.
    pub(in crate::stt) fn push(&mut self, now: Instant, command: &Command) {
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
        while self.bytes > self.max_bytes {
            let oldest = self.utterances.iter_mut().find_map(|speech| speech.audio.pop_front());
            let Some(chunk) = oldest else { return };
            self.bytes -= chunk.len();
        }
    }

    /// Removes the oldest utterance: it has its final transcript.
    pub(in crate::stt) fn pop(&mut self, now: Instant) {
        if let Some(speech) = self.utterances.pop_front() {
            self.bytes -= speech.audio.iter().map(Bytes::len).sum::<usize>();
        }
        self.filled_since = (!self.utterances.is_empty()).then_some(now);
    }

    /// Removes the utterances that have ended.
    pub(in crate::stt) fn drop_ended(&mut self, now: Instant) {
        while self.utterances.front().is_some_and(|speech| speech.ended) {
            self.pop(now);
        }
    }

    /// The utterances, oldest first.
    pub(in crate::stt) fn utterances(&self) -> impl Iterator<Item = &Speech> {
        self.utterances.iter()
    }

    /// The commands that lead to this buffer.
    pub(in crate::stt) fn commands(&self) -> impl Iterator<Item = Command> {
        self.utterances.iter().flat_map(|speech| {
            let audio = speech.audio.iter().cloned().map(Command::Audio);
            let end = speech.ended.then_some(Command::EndSpeech);
            std::iter::once(Command::StartSpeech).chain(audio).chain(end)
        })
    }

    /// Since when audio waits for a transcript; `None` without an utterance.
    pub(in crate::stt) fn filled_since(&self) -> Option<Instant> {
        self.filled_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stt::streaming::BYTES_PER_SECOND;

    fn lengths(buffer: &SpeechBuffer) -> Vec<(usize, bool)> {
        let length = |speech: &Speech| speech.audio.iter().map(Bytes::len).sum();
        buffer.utterances().map(|speech| (length(speech), speech.ended)).collect()
    }

    #[test]
    fn audio_is_stored_until_the_final_transcript_and_at_most_30_s_of_it() {
        let seconds = |n: usize| n * BYTES_PER_SECOND;
        let now = Instant::now();
        let mut buffer = SpeechBuffer::new(seconds(30));
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
        let expected = vec![(seconds(1), true), (seconds(20), true), (seconds(9), false)];
        assert_eq!(lengths(&buffer), expected);
        assert_eq!(buffer.filled_since(), Some(now));
        buffer.pop(now);
        assert_eq!(lengths(&buffer), expected[1..]);
        buffer.push(now, &Command::StartSpeech);
        buffer.drop_ended(now);
        assert_eq!(lengths(&buffer), [(seconds(9), false), (0, false)]);
        let mut copy = SpeechBuffer::new(seconds(30));
        buffer.commands().for_each(|command| copy.push(now, &command));
        assert_eq!(lengths(&copy), lengths(&buffer));
        buffer.pop(now);
        buffer.pop(now);
        assert_eq!((buffer.bytes, buffer.filled_since()), (0, None));
    }
}
