//! How well lips that were read from sound follow those of the phones that were said. For `engine/tests/lips.rs` and `engine/examples/lips.rs`.
#![allow(dead_code, reason = "each user takes its part")]

use std::sync::{Arc, Mutex};

use engine::show::visemes::{Viseme, VisemeTrack};
use engine::speak::tts::{self, SynthesisEvent};
use models::face::Mouth;
use models::tts::{Event, Phone};

/// How far from its phone a closure may be seen, in seconds.
pub(crate) const CLOSURE_TOLERANCE: f32 = 0.04;
/// Seconds between two looks at the mouth.
const SAMPLE_INTERVAL: f32 = 0.01;

/// Phones that a sound without phones is given on its way to playout, in chunks of .1 s.
pub(crate) fn phones_from_audio(pcm: &[i16], sample_rate: u32) -> Vec<Phone> {
    let phones: Arc<Mutex<Vec<Phone>>> = Arc::default();
    let collected = Arc::clone(&phones);
    let sink = tts::synthesis_sink(true, move |news| {
        if let SynthesisEvent::Phones(more) = news {
            collected.lock().unwrap().extend(more);
        }
    });
    for chunk in pcm.chunks(sample_rate as usize / 10) {
        sink.send(Event::Audio { pcm: chunk.to_vec(), sample_rate });
    }
    sink.send(Event::End);
    std::mem::take(&mut *phones.lock().unwrap())
}

/// Lips are shut: pressed together, or the lower one under the teeth.
pub(crate) fn lips_are_shut(mouth: &Mouth) -> bool {
    mouth.press > 0.7 || mouth.tuck > 0.7
}

/// Whether a phone is made with shut lips.
pub(crate) fn is_closure(name: &str) -> bool {
    ["p", "b", "m", "f", "v"].contains(&name)
}

/// Beginning and end of each phone that shuts the lips.
pub(crate) fn closures(phones: &[Phone]) -> Vec<(f32, f32)> {
    let starts = std::iter::once(0.0).chain(phones.iter().map(|p| p.end));
    starts.zip(phones).filter(|(_, p)| is_closure(&p.name)).map(|(start, p)| (start, p.end)).collect()
}

/// Pearson's r; 0 where one does not vary.
pub(crate) fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    if spread > 0.0 { sum(&|x, y| x * y) / spread } else { 0.0 }
}

/// The lips of a piece of speech.
struct LipMotion {
    track: VisemeTrack,
    closures: Vec<(f32, f32)>,
}

impl LipMotion {
    fn new(phones: &[Phone]) -> Self {
        Self { track: VisemeTrack::new(phones), closures: closures(phones) }
    }
}

/// Pieces of speech, with what was said and what was read.
#[derive(Default)]
pub(crate) struct LipComparison(Vec<(LipMotion, LipMotion)>);

impl LipComparison {
    pub(crate) fn add(&mut self, spoken: &[Phone], read: &[Phone]) {
        self.0.push((LipMotion::new(spoken), LipMotion::new(read)));
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.iter().map(|(said, _)| f64::from(said.track.end())).sum()
    }

    /// Agreement of the two jaws, the one that was read taken `late` seconds later.
    pub(crate) fn jaw_correlation(&self, late: f32) -> f64 {
        let (mut said, mut read) = (Vec::new(), Vec::new());
        for (a, b) in &self.0 {
            for n in 0..(a.track.end() / SAMPLE_INTERVAL) as usize {
                let at = n as f32 * SAMPLE_INTERVAL;
                said.push(f64::from(a.track.mouth_at(at).jaw));
                read.push(f64::from(b.track.mouth_at(at + late).jaw));
            }
        }
        correlation(&said, &read)
    }

    /// By how many seconds the lips that were read come later than those that were said, where both agree best.
    pub(crate) fn lag(&self) -> f32 {
        let shifts = (-10i8..=10).map(|n| f32::from(n) * SAMPLE_INTERVAL);
        shifts
            .max_by(|a, b| self.jaw_correlation(*a).total_cmp(&self.jaw_correlation(*b)))
            .unwrap_or_default()
    }

    /// Closures that were said, and those of them where lips are shut within [`CLOSURE_TOLERANCE`].
    pub(crate) fn count_closures(&self) -> (usize, usize) {
        let seen = |track: &VisemeTrack, (start, end): (f32, f32)| {
            let steps = ((end - start + 2.0 * CLOSURE_TOLERANCE) / SAMPLE_INTERVAL) as usize;
            (0..=steps).any(|n| {
                lips_are_shut(&track.mouth_at(start - CLOSURE_TOLERANCE + n as f32 * SAMPLE_INTERVAL))
            })
        };
        let all = self.0.iter().flat_map(|(said, read)| said.closures.iter().map(|c| seen(&read.track, *c)));
        all.fold((0, 0), |(all, shut), seen| (all + 1, shut + usize::from(seen)))
    }

    /// Closures that were read where none was said within [`CLOSURE_TOLERANCE`].
    pub(crate) fn false_closures(&self) -> usize {
        let near =
            |a: (f32, f32), b: (f32, f32)| a.0 < b.1 + CLOSURE_TOLERANCE && b.0 < a.1 + CLOSURE_TOLERANCE;
        let none = |said: &[(f32, f32)], read: (f32, f32)| !said.iter().any(|s| near(*s, read));
        let invented = |(said, read): &(LipMotion, LipMotion)| {
            read.closures.iter().filter(|closure| none(&said.closures, **closure)).count()
        };
        self.0.iter().map(invented).sum()
    }

    /// For each viseme the frames of 10 ms in which it was said, and those of them in which it was read.
    pub(crate) fn viseme_counts(&self) -> [(usize, usize); Viseme::ALL.len()] {
        let mut counts = [(0, 0); Viseme::ALL.len()];
        for (LipMotion { track: said, .. }, LipMotion { track: read, .. }) in &self.0 {
            for n in 0..(said.end() / SAMPLE_INTERVAL) as usize {
                let at = (n as f32 + 0.5) * SAMPLE_INTERVAL;
                let viseme = said.viseme_at(at);
                let slot = &mut counts[Viseme::ALL.iter().position(|v| *v == viseme).unwrap_or(0)];
                slot.0 += 1;
                slot.1 += usize::from(read.viseme_at(at) == viseme);
            }
        }
        counts
    }
}
