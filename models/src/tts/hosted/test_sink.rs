//! The events of a segment, for tests.

use tokio::sync::mpsc;

use crate::Sink;
use crate::tts::Event;

/// Receives the events of a segment.
pub(in crate::tts) struct Events(mpsc::UnboundedReceiver<Event>);

pub(in crate::tts) fn sink() -> (Sink<Event>, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Sink::new(move |event| drop(sender.send(event))), Events(receiver))
}

/// What was received for a segment.
#[derive(Debug, Default, PartialEq)]
pub(in crate::tts) struct Speech {
    pub(in crate::tts) samples: Vec<i16>,
    pub(in crate::tts) sample_rate: u32,
    /// Text, start and end in ms.
    pub(in crate::tts) words: Vec<(String, i64, i64)>,
    pub(in crate::tts) characters: u32,
    /// The failure, with its kind in front; empty after an end.
    pub(in crate::tts) failed: String,
}

impl Speech {
    /// The words alone, with blanks between them.
    pub(in crate::tts) fn text(&self) -> String {
        self.words.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(" ")
    }
}

impl Events {
    /// The next event, if there is one already.
    pub(in crate::tts) fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok()
    }

    /// Whether an event has arrived that was not received.
    pub(in crate::tts) fn has_more(&self) -> bool {
        !self.0.is_empty()
    }

    /// Receives until the end or the failure.
    pub(in crate::tts) async fn speech(&mut self) -> Speech {
        let mut speech = Speech::default();
        loop {
            match self.0.recv().await.expect("an end") {
                Event::Audio { pcm, sample_rate } => {
                    assert!(!pcm.is_empty());
                    speech.samples.extend(pcm);
                    speech.sample_rate = sample_rate;
                }
                Event::Words(words) => {
                    assert!(!words.is_empty());
                    let ms = |t: f64| (t * 1e3).round() as i64;
                    let word = |w: crate::tts::Word| (w.text, w.begin.map_or(-1, ms), ms(w.end));
                    speech.words.extend(words.into_iter().map(word));
                }
                Event::Usage { characters, .. } => speech.characters += characters,
                Event::Provider(name) | Event::ServedBy(name) => {
                    panic!("no vendor names itself: {name}")
                }
                Event::Warning(text) => panic!("no vendor warns: {text}"),
                Event::Phones(phones) => panic!("no vendor sends phones: {phones:?}"),
                Event::End => return speech,
                Event::Failed(error) => {
                    speech.failed = format!("{:?} {error}", error.kind());
                    return speech;
                }
            }
        }
    }
}
