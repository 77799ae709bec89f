//! How well phones inferred from audio follow the spoken phones, as lip motion. Used by
//! `engine/tests/lips.rs` and `engine/examples/lips.rs`.
#![allow(dead_code, reason = "each user takes its part")]

use std::sync::{Arc, Mutex};

use engine::show::visemes::{Viseme, VisemeTrack};
use engine::speak::tts::{self, SynthesisEvent};
use models::face::Mouth;
use models::tts::{Event, Phone};

/// Maximum distance in seconds between a closure and its phone.
pub(crate) const CLOSURE_TOLERANCE: f32 = 0.04;
/// Seconds between two samples of the mouth.
const SAMPLE_INTERVAL: f32 = 0.01;

/// The phones that the synthesis sink infers for audio without phones, in chunks of 0.1 s.
pub(crate) fn phones_from_audio(pcm: &[i16], sample_rate: u32) -> Vec<Phone> {
    let phones: Arc<Mutex<Vec<Phone>>> = Arc::default();
    let collected = Arc::clone(&phones);
    let sink = tts::synthesis_sink(true, false, move |event| {
        if let SynthesisEvent::Phones(more) = event {
            collected.lock().unwrap().extend(more);
        }
    });
    for chunk in pcm.chunks(sample_rate as usize / 10) {
        sink.send(Event::Audio { pcm: chunk.to_vec(), sample_rate });
    }
    sink.send(Event::End);
    std::mem::take(&mut *phones.lock().unwrap())
}

/// Whether the lips are shut: pressed together, or the lower one under the teeth.
pub(crate) fn lips_are_shut(mouth: &Mouth) -> bool {
    mouth.press > 0.7 || mouth.tuck > 0.7
}

/// Whether the lips are shut for a phone.
pub(crate) fn is_closure(name: &str) -> bool {
    ["p", "b", "m", "f", "v"].contains(&name)
}

/// Start and end in seconds of each phone that shuts the lips.
pub(crate) fn closures(phones: &[Phone]) -> Vec<(f32, f32)> {
    let starts = std::iter::once(0.0).chain(phones.iter().map(|p| p.end));
    starts
        .zip(phones)
        .filter(|(_, p)| is_closure(&p.name))
        .map(|(start, p)| (start, p.end))
        .collect()
}

/// Pearson's r; 0 if one of the two is constant.
pub(crate) fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    if spread > 0.0 { sum(&|x, y| x * y) / spread } else { 0.0 }
}

/// The lip motion of some speech.
struct LipMotion {
    track: VisemeTrack,
    closures: Vec<(f32, f32)>,
}

impl LipMotion {
    fn new(phones: &[Phone]) -> Self {
        Self { track: VisemeTrack::new(phones), closures: closures(phones) }
    }
}

/// Pairs of lip motion: from the spoken phones, and from the inferred ones.
#[derive(Default)]
pub(crate) struct LipComparison(Vec<(LipMotion, LipMotion)>);

impl LipComparison {
    pub(crate) fn add(&mut self, spoken: &[Phone], inferred: &[Phone]) {
        self.0.push((LipMotion::new(spoken), LipMotion::new(inferred)));
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.iter().map(|(spoken, _)| f64::from(spoken.track.end())).sum()
    }

    /// Correlation of the two jaw openings, the inferred one taken `late` seconds later.
    pub(crate) fn jaw_correlation(&self, late: f32) -> f64 {
        let (mut spoken, mut inferred) = (Vec::new(), Vec::new());
        for (a, b) in &self.0 {
            for n in 0..(a.track.end() / SAMPLE_INTERVAL) as usize {
                let at = n as f32 * SAMPLE_INTERVAL;
                spoken.push(f64::from(a.track.mouth_at(at).jaw));
                inferred.push(f64::from(b.track.mouth_at(at + late).jaw));
            }
        }
        correlation(&spoken, &inferred)
    }

    /// Delay in seconds of the inferred lip motion behind the spoken one, at the highest
    /// correlation.
    pub(crate) fn lag(&self) -> f32 {
        let shifts = (-10i8..=10).map(|n| f32::from(n) * SAMPLE_INTERVAL);
        shifts
            .max_by(|a, b| self.jaw_correlation(*a).total_cmp(&self.jaw_correlation(*b)))
            .unwrap_or_default()
    }

    /// Number of spoken closures, and of those for which the inferred lips are shut within
    /// [`CLOSURE_TOLERANCE`].
    pub(crate) fn count_closures(&self) -> (usize, usize) {
        let seen = |track: &VisemeTrack, (start, end): (f32, f32)| {
            let steps = ((end - start + 2.0 * CLOSURE_TOLERANCE) / SAMPLE_INTERVAL) as usize;
            (0..=steps).any(|n| {
                lips_are_shut(
                    &track.mouth_at(start - CLOSURE_TOLERANCE + n as f32 * SAMPLE_INTERVAL),
                )
            })
        };
        let all = self.0.iter().flat_map(|(spoken, inferred)| {
            spoken.closures.iter().map(|closure| seen(&inferred.track, *closure))
        });
        all.fold((0, 0), |(all, shut), seen| (all + 1, shut + usize::from(seen)))
    }

    /// Number of inferred closures without a spoken one within [`CLOSURE_TOLERANCE`].
    pub(crate) fn false_closures(&self) -> usize {
        let near = |a: (f32, f32), b: (f32, f32)| {
            a.0 < b.1 + CLOSURE_TOLERANCE && b.0 < a.1 + CLOSURE_TOLERANCE
        };
        let none = |spoken: &[(f32, f32)], inferred: (f32, f32)| {
            !spoken.iter().any(|s| near(*s, inferred))
        };
        let invented = |(spoken, inferred): &(LipMotion, LipMotion)| {
            inferred.closures.iter().filter(|closure| none(&spoken.closures, **closure)).count()
        };
        self.0.iter().map(invented).sum()
    }

    /// For each viseme, the number of 10 ms steps in which it was spoken, and of those in which it
    /// was also inferred.
    pub(crate) fn viseme_counts(&self) -> [(usize, usize); Viseme::ALL.len()] {
        let mut counts = [(0, 0); Viseme::ALL.len()];
        for (LipMotion { track: spoken, .. }, LipMotion { track: inferred, .. }) in &self.0 {
            for n in 0..(spoken.end() / SAMPLE_INTERVAL) as usize {
                let at = (n as f32 + 0.5) * SAMPLE_INTERVAL;
                let viseme = spoken.viseme_at(at);
                let slot = &mut counts[Viseme::ALL.iter().position(|v| *v == viseme).unwrap_or(0)];
                slot.0 += 1;
                slot.1 += usize::from(inferred.viseme_at(at) == viseme);
            }
        }
        counts
    }
}
