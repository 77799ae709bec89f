//! Phones → visemes → mouth.
//!
//! Each phone pulls the mouth toward its viseme, with a strength that decays outside of the phone
//! (dominance functions: Cohen & Massaro, "Modeling coarticulation in synthetic visual speech",
//! 1993). Each group of muscles has its own strength. So the "s" in "soon" is already rounded,
//! while "p" closes the lips in any context. Lips that fail to close are the first error that
//! people notice, so closures and silence are enforced on top of the blend.

use models::face::Mouth;
use models::tts::Phone;

/// Classes of lip shapes: the 15 visemes in common use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viseme {
    /// Silence.
    Sil,
    /// p b m
    Pp,
    /// f v
    Ff,
    /// th dh
    Th,
    /// t d
    Dd,
    /// k g ng hh
    Kk,
    /// ch jh sh zh
    Ch,
    /// s z
    Ss,
    /// n l
    Nn,
    /// r er
    Rr,
    /// aa ae ah
    Aa,
    /// eh
    E,
    /// ih iy y
    Ih,
    /// ao
    Oh,
    /// uw uh w
    Ou,
}

impl Viseme {
    /// All visemes.
    pub const ALL: [Self; 15] = {
        use Viseme::{Aa, Ch, Dd, E, Ff, Ih, Kk, Nn, Oh, Ou, Pp, Rr, Sil, Ss, Th};
        [Sil, Pp, Ff, Th, Dd, Kk, Ch, Ss, Nn, Rr, Aa, E, Ih, Oh, Ou]
    };

    /// The standard name: `sil`, `PP`, `aa` …
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sil => "sil",
            Self::Pp => "PP",
            Self::Ff => "FF",
            Self::Th => "TH",
            Self::Dd => "DD",
            Self::Kk => "kk",
            Self::Ch => "CH",
            Self::Ss => "SS",
            Self::Nn => "nn",
            Self::Rr => "RR",
            Self::Aa => "aa",
            Self::E => "E",
            Self::Ih => "ih",
            Self::Oh => "oh",
            Self::Ou => "ou",
        }
    }

    /// The mouth of this viseme in isolation.
    #[must_use]
    pub fn mouth(self) -> Mouth {
        let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
        match self {
            Self::Sil => Mouth::default(),
            Self::Pp => Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
            Self::Ff => Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.0, 0.0) },
            Self::Th => m(0.28, 0.1, 0.0, 1.0),
            Self::Dd => m(0.26, 0.15, 0.0, 0.6),
            Self::Kk => m(0.32, 0.15, 0.0, 0.0),
            Self::Ch => m(0.20, -0.2, 0.55, 0.2),
            Self::Ss => m(0.13, 0.5, 0.0, 0.3),
            Self::Nn => m(0.24, 0.1, 0.0, 0.6),
            Self::Rr => m(0.24, -0.2, 0.45, 0.25),
            Self::Aa => m(0.78, 0.1, 0.0, 0.0),
            Self::E => m(0.50, 0.6, 0.0, 0.1),
            Self::Ih => m(0.30, 0.7, 0.0, 0.1),
            Self::Oh => m(0.68, -0.2, 0.6, 0.0),
            Self::Ou => m(0.28, -0.3, 1.0, 0.0),
        }
    }

    /// Dominance over the neighbors, for each group: jaw, lip shape (width, round), closure
    /// (press, tuck), tongue.
    fn dominance(self) -> [f32; 4] {
        match self {
            Self::Sil => [1.0, 0.7, 0.8, 0.6],
            Self::Pp => [2.5, 0.3, 4.0, 0.2],
            Self::Ff => [2.2, 0.4, 4.0, 0.2],
            Self::Th => [1.3, 0.3, 0.8, 3.0],
            Self::Dd | Self::Nn => [0.9, 0.25, 0.7, 2.0],
            Self::Kk => [0.5, 0.12, 0.6, 0.6],
            Self::Ch => [1.5, 1.6, 0.8, 0.8],
            Self::Ss => [2.0, 0.7, 0.8, 0.8],
            Self::Rr => [0.8, 1.1, 0.7, 0.8],
            Self::Aa | Self::E | Self::Ih | Self::Oh => [1.0, 1.0, 0.7, 0.4],
            Self::Ou => [1.1, 1.6, 0.7, 0.4],
        }
    }
}

/// The visemes of a phone; diphthongs have two. Each has a factor on the viseme's jaw opening.
fn visemes_of_phone(phone: &str) -> [Option<(Viseme, f32)>; 2] {
    use Viseme::{Aa, Ch, Dd, E, Ff, Ih, Kk, Nn, Oh, Ou, Pp, Rr, Sil, Ss, Th};
    let one = |v, k| [Some((v, k)), None];
    match phone {
        "p" | "b" | "m" | "em" => one(Pp, 1.0),
        "f" | "v" => one(Ff, 1.0),
        "th" | "dh" => one(Th, 1.0),
        "t" | "d" | "dx" => one(Dd, 1.0),
        "n" | "l" | "en" | "el" | "nx" => one(Nn, 1.0),
        "k" | "g" | "ng" => one(Kk, 1.0),
        "hh" | "hv" => one(Kk, 1.2),
        "ch" | "jh" | "sh" | "zh" => one(Ch, 1.0),
        "s" | "z" => one(Ss, 1.0),
        "r" | "er" | "axr" => one(Rr, 1.0),
        "aa" => one(Aa, 1.0),
        "ae" => one(Aa, 0.85),
        "ah" => one(Aa, 0.62),
        "ax" | "ix" => one(E, 0.62),
        "eh" => one(E, 1.0),
        "ih" => one(Ih, 1.0),
        "iy" | "y" => one(Ih, 0.8),
        "ao" => one(Oh, 1.0),
        "uh" => one(Ou, 1.15),
        "uw" | "w" => one(Ou, 1.0),
        "ay" => [Some((Aa, 0.9)), Some((Ih, 1.0))],
        "aw" => [Some((Aa, 0.9)), Some((Ou, 1.1))],
        "ey" => [Some((E, 0.95)), Some((Ih, 0.9))],
        "ow" => [Some((Oh, 0.9)), Some((Ou, 1.0))],
        "oy" => [Some((Oh, 0.9)), Some((Ih, 1.0))],
        _ => one(Sil, 1.0),
    }
}

/// Whether a phone is a pause.
pub(super) fn is_silence(phone: &str) -> bool {
    matches!(visemes_of_phone(phone), [Some((Viseme::Sil, _)), _])
}

/// Whether a phone begins with a mouth that is at least half open.
pub(super) fn open_vowel(phone: &str) -> bool {
    matches!(visemes_of_phone(phone), [Some((viseme, k)), _] if viseme.mouth().jaw * k > 0.44)
}

/// Share of a diphthong's duration for its first half.
const DIPHTHONG_SPLIT: f32 = 0.55;
/// Time constants of the dominance before and after the phone, seconds: lips move ahead of the
/// audio rather than lag behind it.
const ANTICIPATION_SECONDS: f32 = 0.060;
const CARRY_OVER_SECONDS: f32 = 0.042;
/// Half of the minimum time of a complete closure, seconds. It exceeds half a frame at 25 fps, so
/// that one frame shows the closure.
const MIN_HALF_CLOSURE_SECONDS: f32 = 0.023;
/// Time for the lips to reach a closure or leave it, seconds.
const CLOSURE_RAMP_SECONDS: f32 = 0.035;
/// Neighbors farther away than this many seconds have no effect.
const COARTICULATION_SECONDS: f32 = 0.30;

#[derive(Clone, Copy, Debug)]
struct VisemeSpan {
    start: f32,
    end: f32,
    viseme: Viseme,
    mouth: Mouth,
    dominance: [f32; 4],
}

/// The lip motion of one segment.
#[derive(Clone, Debug, Default)]
pub struct VisemeTrack(Vec<VisemeSpan>);

impl VisemeTrack {
    /// A track of the phones in order; their ends are seconds from the segment's first sample.
    #[must_use]
    pub fn new(phones: &[Phone]) -> Self {
        let mut track = Self::default();
        track.extend(phones);
        track
    }

    /// Adds phones after the existing ones.
    pub fn extend(&mut self, phones: &[Phone]) {
        for phone in phones {
            let start = self.end();
            let length = phone.end - start;
            if length.is_nan() || length <= 0.0 {
                continue;
            }
            match visemes_of_phone(&phone.name) {
                [Some((first, a)), Some((second, b))] => {
                    let middle = start + length * DIPHTHONG_SPLIT;
                    self.push(start, middle, first, a);
                    self.push(middle, phone.end, second, b);
                }
                [Some((only, k)), _] => {
                    self.push(start, phone.end, only, k);
                    if phone.name.starts_with('h')
                        && let Some(aspiration) = self.0.last_mut()
                    {
                        // "h" has the mouth of its vowel.
                        aspiration.dominance = [0.3, 0.05, 0.4, 0.2];
                    }
                }
                [None, _] => {}
            }
        }
    }

    fn push(&mut self, start: f32, end: f32, viseme: Viseme, opening: f32) {
        // Consecutive silences are merged into one pause, because only a long enough pause closes
        // the mouth.
        if viseme == Viseme::Sil
            && let Some(pause) = self.0.last_mut().filter(|s| s.viseme == Viseme::Sil)
        {
            pause.end = end;
            return;
        }
        let mut mouth = viseme.mouth();
        mouth.jaw *= opening;
        self.0.push(VisemeSpan { start, end, viseme, mouth, dominance: viseme.dominance() });
    }

    /// End of the last phone, seconds.
    #[must_use]
    pub fn end(&self) -> f32 {
        self.0.last().map_or(0.0, |s| s.end)
    }

    /// The viseme at `at` seconds; silence outside of all phones.
    #[must_use]
    pub fn viseme_at(&self, at: f32) -> Viseme {
        let found = self.0.get(self.0.partition_point(|s| s.end <= at));
        found.filter(|s| s.start <= at).map_or(Viseme::Sil, |s| s.viseme)
    }

    /// Number of seconds from `at` on without sound or anticipatory lip motion; infinite after the
    /// last phone.
    #[must_use]
    pub fn silence_from(&self, at: f32) -> f32 {
        let now = self.0.partition_point(|s| s.end <= at);
        let next = self.0[now..].iter().find(|s| s.viseme != Viseme::Sil);
        next.map_or(f32::INFINITY, |s| s.start - ANTICIPATION_SECONDS - at).max(0.0)
    }

    /// The mouth at `at` seconds; closed before the first phone and after the last.
    #[must_use]
    pub fn mouth_at(&self, at: f32) -> Mouth {
        let first = self.0.partition_point(|s| s.end < at - COARTICULATION_SECONDS);
        let neighbours =
            self.0[first..].iter().take_while(|s| s.start < at + COARTICULATION_SECONDS);
        // Outside of all phones, silence pulls like a phone.
        let outside = if at < 0.0 || at > self.end() { 1.0 } else { 0.0 };
        let quiet = Viseme::Sil.dominance();
        let mut sums = quiet.map(|q| q * outside);
        let mut blend = Mouth::default();
        for s in neighbours.clone() {
            let core = (s.end - s.start) * 0.2;
            let (before, after) = (s.start + core - at, at - (s.end - core));
            let pull = if before > 0.0 {
                (-before / ANTICIPATION_SECONDS).exp()
            } else if after > 0.0 {
                (-after / CARRY_OVER_SECONDS).exp()
            } else {
                1.0
            };
            let [jaw, shape, closure, tongue] = s.dominance.map(|d| d * pull);
            blend.jaw += jaw * s.mouth.jaw;
            blend.width += shape * s.mouth.width;
            blend.round += shape * s.mouth.round;
            blend.press += closure * s.mouth.press;
            blend.tuck += closure * s.mouth.tuck;
            blend.tongue += tongue * s.mouth.tongue;
            for (sum, d) in sums.iter_mut().zip([jaw, shape, closure, tongue]) {
                *sum += d;
            }
        }
        let [jaw, shape, closure, tongue] = sums.map(|sum| sum.max(1e-6));
        let mut mouth = Mouth {
            jaw: blend.jaw / jaw,
            width: blend.width / shape,
            round: blend.round / shape,
            press: blend.press / closure,
            tuck: blend.tuck / closure,
            tongue: blend.tongue / tongue,
        };
        for s in neighbours {
            let k = s.closure_amount(at);
            if k > 0.0 {
                mouth = s.apply_closure(mouth, k);
            }
        }
        if outside > 0.0 {
            let gap = if at < 0.0 { -at } else { at - self.end() };
            mouth = lerp(mouth, Mouth::default(), (gap / 0.08).min(1.0));
        }
        mouth
    }
}

impl VisemeSpan {
    /// How far the lips must have reached this closure or silence: 1 = completely.
    fn closure_amount(&self, at: f32) -> f32 {
        let (half, ramp) = match self.viseme {
            Viseme::Pp | Viseme::Ff => {
                (MIN_HALF_CLOSURE_SECONDS.max((self.end - self.start) * 0.25), CLOSURE_RAMP_SECONDS)
            }
            // Only a long enough pause closes the mouth, and the mouth opens ahead of the next
            // phone.
            Viseme::Sil => ((self.end - self.start) * 0.5 - 0.07, 0.07),
            _ => return 0.0,
        };
        let distance = (at - (self.start + self.end) * 0.5).abs() - half;
        smoothstep(1.0 - distance / ramp)
    }

    fn apply_closure(&self, mouth: Mouth, k: f32) -> Mouth {
        match self.viseme {
            // Rounding and width stay those of the neighbors: in "boot" the lips are pressed and
            // rounded at once.
            Viseme::Pp => lerp(mouth, Mouth { jaw: 0.04, press: 1.0, tuck: 0.0, ..mouth }, k),
            Viseme::Ff => lerp(mouth, Mouth { jaw: 0.18, press: 0.0, tuck: 1.0, ..mouth }, k),
            _ => lerp(mouth, Mouth::default(), k),
        }
    }
}

/// Interpolates from `a` (`k` = 0) to `b` (`k` = 1).
#[must_use]
pub fn lerp(a: Mouth, b: Mouth, k: f32) -> Mouth {
    let mix = |a: f32, b: f32| a + (b - a) * k;
    Mouth {
        jaw: mix(a.jaw, b.jaw),
        width: mix(a.width, b.width),
        round: mix(a.round, b.round),
        press: mix(a.press, b.press),
        tuck: mix(a.tuck, b.tuck),
        tongue: mix(a.tongue, b.tongue),
    }
}

/// Smooth step: 0 below 0, 1 above 1, with a smooth transition.
#[must_use]
pub fn smoothstep(x: f32) -> f32 {
    let x = x.clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phones of equal length, seconds.
    fn phones(names: &str, length: f32) -> Vec<Phone> {
        let mut end = 0.0;
        names
            .split_whitespace()
            .map(|name| {
                end += length;
                Phone::new(name, end)
            })
            .collect()
    }

    #[test]
    fn every_closure_is_seen_in_some_frame_whatever_surrounds_it() {
        for closure in ["p", "b", "m", "f", "v"] {
            for vowel in ["aa", "iy", "uw", "ow", "ay"] {
                for length in [0.04, 0.06, 0.1] {
                    let track = VisemeTrack::new(&phones(
                        &format!("pau {vowel} {closure} {vowel} pau"),
                        length,
                    ));
                    // Frames may have any phase.
                    for phase in 0..10 {
                        let seen =
                            (0..40).map(|n| (n as f32 + phase as f32 / 10.0) * 0.04).any(|at| {
                                let inside = at > 1.5 * length && at < 3.5 * length;
                                let mouth = track.mouth_at(at);
                                inside && mouth.press.max(mouth.tuck) > 0.95 && mouth.jaw < 0.25
                            });
                        assert!(
                            seen,
                            "{vowel} {closure} {vowel}, {length} s a phone, phase {phase}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn silence_closes_the_mouth() {
        let track = VisemeTrack::new(&phones("aa aa aa pau pau pau pau aa aa", 0.1));
        assert!(track.mouth_at(0.5).jaw < 0.05, "{:?}", track.mouth_at(0.5));
        assert!(track.mouth_at(0.15).jaw > 0.6);
        assert_eq!(track.mouth_at(2.0), Mouth::default());
        assert_eq!(track.mouth_at(-1.0), Mouth::default());
        assert_eq!(VisemeTrack::default().mouth_at(0.0).jaw, 0.0);
    }

    #[test]
    fn a_pause_told_in_parts_closes_like_one_told_at_once() {
        let (parts, whole) = (VisemeTrack::new(&phones("aa aa pau pau pau pau aa", 0.1)), {
            let mut all = phones("aa aa pau pau pau pau aa", 0.1);
            all.drain(2..5);
            VisemeTrack::new(&all)
        });
        for n in 0..80 {
            let at = n as f32 * 0.01;
            assert_eq!(
                (parts.mouth_at(at), parts.viseme_at(at)),
                (whole.mouth_at(at), whole.viseme_at(at)),
                "{at}"
            );
        }
        assert_eq!(
            (whole.viseme_at(0.15), whole.viseme_at(0.45), whole.viseme_at(9.0)),
            (Viseme::Aa, Viseme::Sil, Viseme::Sil)
        );
    }

    #[test]
    fn a_track_knows_how_long_it_is_quiet() {
        let track = VisemeTrack::new(&phones("pau aa pau pau pau aa pau", 0.1));
        for (at, quiet) in
            [(0.0, 0.04), (0.12, 0.0), (0.2, 0.24), (0.3, 0.14), (0.49, 0.0), (0.55, 0.0)]
        {
            assert!(
                (track.silence_from(at) - quiet).abs() < 1e-4,
                "{at}: {}",
                track.silence_from(at)
            );
        }
        assert_eq!(
            [
                track.silence_from(0.6),
                track.silence_from(5.0),
                VisemeTrack::default().silence_from(0.0)
            ],
            [f32::INFINITY; 3]
        );
    }

    #[test]
    fn lips_round_ahead_of_a_rounded_vowel() {
        let (soon, seen) =
            (VisemeTrack::new(&phones("s uw n", 0.1)), VisemeTrack::new(&phones("s iy n", 0.1)));
        assert!(soon.mouth_at(0.06).round > seen.mouth_at(0.06).round + 0.2);
        assert!(seen.mouth_at(0.06).width > soon.mouth_at(0.06).width + 0.2);
    }

    #[test]
    fn a_diphthong_moves_from_its_first_vowel_to_its_second() {
        let track = VisemeTrack::new(&phones("aw", 0.3));
        assert!(track.mouth_at(0.08).jaw > track.mouth_at(0.25).jaw + 0.2);
        assert!(track.mouth_at(0.25).round > track.mouth_at(0.08).round + 0.4);
    }

    #[test]
    fn all_parameters_stay_in_range_for_any_phones() {
        let names = "pau p aa f oy th zz er m uw ch ey hh ay b s w ax ng v ae";
        for length in [0.0, 0.01, 0.07, 0.2] {
            let track = VisemeTrack::new(&phones(names, length));
            for n in -50..500 {
                let m = track.mouth_at(n as f32 * 0.01);
                for v in [m.jaw, m.round, m.press, m.tuck, m.tongue] {
                    assert!((0.0..=1.001).contains(&v), "{m:?}");
                }
                assert!((-1.0..=1.0).contains(&m.width), "{m:?}");
            }
        }
    }
}
