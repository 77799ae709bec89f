//! Collects the events of a synthesizer's segment.

use std::sync::mpsc;

use engine::speak::manners::{Manner, Manners};
use engine::speak::tts::{SynthesisEvent, synthesis_sink};
use models::Sink;
use models::tts::Event;

use conversation::input::{Epoch, GenerationId, SegmentId};
use conversation::output::{SpeechSource as Source, TtsRequest};
use conversation::script::Segment;

use crate::{Error, SAMPLE_RATE, Spoken};

/// Longest sound of a segment, in samples. The longest segment has 660 letters or digits, which may be
/// spelled.
const MAX_SEGMENT_SAMPLES: usize = 600 * SAMPLE_RATE as usize;

/// Where a synthesizer sends the events of a segment, and what becomes of them.
pub(crate) struct Synthesis {
    events: mpsc::Receiver<SynthesisEvent>,
}

impl Synthesis {
    pub(crate) fn new() -> (Sink<Event>, Self) {
        let (sender, events) = mpsc::channel();
        // Nobody waits for events after a failure.
        let sink = synthesis_sink(true, true, move |event| drop(sender.send(event)));
        (sink, Self { events })
    }

    /// Waits until the segment is complete, and adds its sound, phones and words.
    pub(crate) fn collect(self, spoken: &mut Spoken) -> Result<(), Error> {
        for event in self.events {
            match event {
                SynthesisEvent::Phones(phones) => spoken.phones.extend(phones),
                SynthesisEvent::Words(words) => spoken.words.extend(words),
                SynthesisEvent::Samples(samples) => spoken.samples.extend(samples),
                SynthesisEvent::End => return Ok(()),
                SynthesisEvent::Failed(error) => return Err(Error::failed(error)),
                SynthesisEvent::Warning(_)
                | SynthesisEvent::Provider(_)
                | SynthesisEvent::ServedBy(_)
                | SynthesisEvent::Usage { .. } => {}
            }
            if spoken.samples.len() > MAX_SEGMENT_SAMPLES {
                return Err(Error::Input("the voice does not stop speaking".into()));
            }
        }
        Err(Error::Failed("the voice stopped within a sentence".into()))
    }
}

/// How the avatar shows the segments of a text.
#[derive(Default)]
pub(crate) struct Shown {
    manners: Manners,
    next: u32,
}

impl Shown {
    /// The next segment, without sound.
    pub(crate) fn start(&mut self, segment: &Segment) -> Spoken {
        Spoken {
            gap: segment.gap,
            shown_as: self.shown_as(segment),
            is_tagged: segment.expression.is_some(),
            text: segment.text.clone(),
            ..Spoken::default()
        }
    }

    fn shown_as(&mut self, segment: &Segment) -> Manner {
        let epoch = Epoch(0);
        let index = self.next;
        self.next += 1;
        let generation = GenerationId { epoch, index: 0 };
        self.manners.manner_of(&TtsRequest {
            segment: SegmentId(index),
            epoch,
            text: segment.text.clone(),
            source: Source::Generation { generation, segment_index: index },
            use_fallback: false,
            expression: segment.expression,
            nod: segment.nod,
        })
    }
}
