//! A text whose sound a hosted voice has made before.

use std::io::Read;
use std::time::Duration;

use conversation::script::Script;
use models::film::{SpoolReader, SpoolRecord};
use models::tts::Event;

use crate::synthesis::{Shown, Synthesis};
use crate::voice::share;
use crate::{Error, SpeechSource, Spoken};

/// Reads the segments of a text from a file of [`SpoolRecord`]s.
pub struct SpoolSource<R> {
    script: Script,
    next: usize,
    spool: SpoolReader<R>,
    shown: Shown,
}

impl<R: Read> SpoolSource<R> {
    /// The text, and a file with all its segments in order.
    ///
    /// # Errors
    /// [`Error::Input`] if there is nothing to speak.
    pub fn new(script: Script, spool: R) -> Result<Self, Error> {
        if script.segments.is_empty() {
            return Err(Error::Input("the text contains nothing to speak".into()));
        }
        let spool = SpoolReader::new(spool);
        Ok(Self { script, next: 0, spool, shown: Shown::default() })
    }
}

impl<R: Read> SpeechSource for SpoolSource<R> {
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error> {
        let Some(segment) = self.script.segments.get(self.next) else { return Ok(None) };
        let records = self.spool.next_segment().map_err(Error::failed)?;
        let Some(records) = records.filter(|records| is_of(records, self.next)) else {
            return Err(Error::Failed("the sound of the hosted voice is not complete".into()));
        };
        self.next += 1;
        let mut spoken = self.shown.start(segment);
        let (sink, synthesis) = Synthesis::new();
        for event in events(records) {
            sink.send(event);
        }
        synthesis.collect(&mut spoken)?;
        Ok(Some(spoken))
    }

    fn done(&self) -> f32 {
        share(&self.script, self.next)
    }

    fn tail(&self) -> Duration {
        self.script.tail
    }
}

fn is_of(records: &[SpoolRecord], segment: usize) -> bool {
    matches!(records.first(), Some(SpoolRecord::Begin(index)) if *index as usize == segment)
}

/// The events of a segment: all marks, then the audio in as few pieces as possible, so that the
/// pieces in which a vendor sends it change nothing.
fn events(records: Vec<SpoolRecord>) -> Vec<Event> {
    let (mut phones, mut words) = (Vec::new(), Vec::new());
    let mut audio: Vec<(u32, Vec<i16>)> = Vec::new();
    for record in records {
        match record {
            SpoolRecord::Phones(more) => phones.extend(more),
            SpoolRecord::Words(more) => words.extend(more),
            SpoolRecord::Audio(rate, pcm) => match audio.last_mut() {
                Some((last, samples)) if *last == rate => samples.extend(pcm),
                _ => audio.push((rate, pcm)),
            },
            SpoolRecord::Begin(_) | SpoolRecord::End => {}
        }
    }
    let mut events = Vec::new();
    if !phones.is_empty() {
        events.push(Event::Phones(phones));
    }
    if !words.is_empty() {
        events.push(Event::Words(words));
    }
    events.extend(audio.into_iter().map(|(sample_rate, pcm)| Event::Audio { pcm, sample_rate }));
    events.push(Event::End);
    events
}
