//! Phones of words whose times are known: lip timing for a voice that reports words but no phones.
//!
//! flite supplies the phones of each word and their relative lengths ([`super::flite`]). The voice
//! supplies the times of the words. The phones of each word are scaled by one factor to fill its
//! time.

use super::flite::{PronouncedPhone, WordPronunciation, pronounce};
use super::{Phone, Voice, Word};

/// The voice that supplies the phone lengths. The other voices take ten times the work and are no
/// better.
const REFERENCE_VOICE: Voice = Voice::Kal16;
/// A shorter gap between two words is not a pause, in seconds. The lips also close this long for a
/// stop, which belongs to its word.
const MIN_PAUSE_SECONDS: f64 = 0.06;
/// Permitted ratio of word lengths to flite's. Beyond it, the times do not belong to these words;
/// milliseconds instead of seconds, for example.
const SPEED_RANGE: std::ops::RangeInclusive<f64> = 0.25..=4.0;
/// A word without a start time that takes more than this multiple of its expected time follows a
/// pause, even where flite has none. A smaller factor would also match words that are only
/// stressed.
const HIDDEN_PAUSE_FACTOR: f64 = 3.0;
/// One of this many words may contain letters that English does not use. With more of them, the
/// text is not English, the only language that flite knows.
const WORDS_PER_FOREIGN_WORD: usize = 8;

/// Aligner of one segment. Words arrive in batches.
pub struct Aligner {
    voice: Voice,
    /// End of the last word, in seconds.
    end: f64,
}

impl Default for Aligner {
    fn default() -> Self {
        Self::new(REFERENCE_VOICE)
    }
}

impl Aligner {
    /// An aligner for a new segment, with the phone lengths of `voice`.
    #[must_use]
    pub fn new(voice: Voice) -> Self {
        Self { voice, end: 0.0 }
    }

    /// Phones of the next words, after those of earlier calls. A pause comes first where there is
    /// one. The last phone ends with the last word.
    ///
    /// Takes less than .1 ms per word. The first call opens a voice of flite, so it must not run on
    /// a media thread.
    ///
    /// # Errors
    /// One sentence with the reason: flite is not installed, the words are not English, or their
    /// times are not in order.
    pub fn phones(&mut self, words: &[Word]) -> Result<Vec<Phone>, String> {
        let texts: Vec<&str> = words.iter().flat_map(|word| word.text.split_whitespace()).collect();
        let foreign = |text: &&&str| text.chars().any(|c| c.is_alphabetic() && !c.is_ascii());
        if texts.iter().filter(foreign).count() * WORDS_PER_FOREIGN_WORD > texts.len() {
            return Err("the words are not English".to_owned());
        }
        if !in_order(self.end, words) {
            return Err("the times of the words are not in order".to_owned());
        }
        let mut pronounced = pronounce(self.voice, &texts.join(" "), &[])?.into_iter();
        let sounds: Vec<WordPronunciation> = words
            .iter()
            .map(|word| {
                join_pronunciations(pronounced.by_ref().take(word.text.split_whitespace().count()))
            })
            .collect();
        let phones = stretch_phones(self.end, words, &sounds);
        self.end = words.last().map_or(self.end, |word| word.end);
        phones.ok_or_else(|| "the word times do not match the text".to_owned())
    }
}

fn in_order(mut from: f64, words: &[Word]) -> bool {
    words.iter().all(|word| {
        let begin = word.begin.unwrap_or(from);
        // Vendors round, so a word may begin slightly before the end of the last one.
        let fits = begin.is_finite()
            && word.end.is_finite()
            && begin > from - MIN_PAUSE_SECONDS
            && word.end >= begin.max(from);
        from = word.end;
        fits
    })
}

/// Joins the pronunciations of one word of the voice, which may be several written words.
fn join_pronunciations(parts: impl Iterator<Item = WordPronunciation>) -> WordPronunciation {
    let mut whole = WordPronunciation::default();
    for part in parts {
        if whole.phones.is_empty() {
            whole.pause += part.pause;
        } else if part.pause > 0.0 {
            let name = "pau".to_owned();
            whole.phones.push(PronouncedPhone { name, stress: false, length: part.pause });
        }
        whole.phones.extend(part.phones);
    }
    whole
}

/// Words that share one time: a single word, or several of which only the last has a duration.
struct Span<'a> {
    begin: Option<f64>,
    end: f64,
    /// From flite: the pause before the words, their phones and the total length of these.
    pause: f64,
    phones: Vec<&'a PronouncedPhone>,
    length: f64,
}

fn spans<'a>(mut from: f64, words: &[Word], sounds: &'a [WordPronunciation]) -> Vec<Span<'a>> {
    let mut all: Vec<Span> = Vec::new();
    let mut open: Option<Span> = None;
    for (word, sound) in words.iter().zip(sounds) {
        let span = open.get_or_insert_with(|| Span {
            begin: word.begin.map(|begin| begin.max(from)),
            end: from,
            pause: f64::from(sound.pause),
            phones: Vec::new(),
            length: 0.0,
        });
        span.phones.extend(&sound.phones);
        span.length += sound.phones.iter().map(|phone| f64::from(phone.length)).sum::<f64>();
        span.end = word.end;
        if word.end - span.begin.unwrap_or(from) > 1e-3 {
            from = word.end;
            all.extend(open.take());
        }
    }
    // Words without duration at the end share the time of the last words with one.
    if let (Some(rest), Some(last)) = (open, all.last_mut()) {
        last.phones.extend(rest.phones);
        last.length += rest.length;
    }
    all
}

/// Scales flite's phones to the words. The first word begins at `from`, or after a pause there.
/// `None` if no speed of flite yields their lengths.
fn stretch_phones(
    mut from: f64,
    words: &[Word],
    sounds: &[WordPronunciation],
) -> Option<Vec<Phone>> {
    let spans = spans(from, words, sounds);
    let mut speeds = Vec::new();
    for (n, span) in spans.iter().enumerate() {
        let before = if n == 0 { from } else { spans[n - 1].end };
        // Where flite has a pause, the voice may have one that it does not report.
        if span.length > 0.0 && (span.begin.is_some() || span.pause == 0.0) {
            speeds.push((span.end - span.begin.unwrap_or(before)) / span.length);
        }
    }
    speeds.sort_by(f64::total_cmp);
    let speed = speeds.get(speeds.len() / 2).copied().unwrap_or(1.0);
    if !SPEED_RANGE.contains(&speed) {
        return None;
    }
    let mut phones = Vec::new();
    for span in spans {
        let begin = match span.begin {
            _ if span.length == 0.0 => span.end,
            Some(begin) if begin - from < MIN_PAUSE_SECONDS => from,
            Some(begin) => begin,
            None => {
                let usual = span.length * speed;
                let pauses = span.pause > 0.0 || span.end - from > HIDDEN_PAUSE_FACTOR * usual;
                if pauses && span.end - from - usual > MIN_PAUSE_SECONDS {
                    span.end - usual
                } else {
                    from
                }
            }
        };
        if begin > from {
            phones.push(Phone::new("pau", begin as f32));
        }
        let mut passed = 0.0;
        for PronouncedPhone { name, stress, length } in span.phones {
            passed += f64::from(*length);
            let end = (begin + (span.end - begin) * (passed / span.length)) as f32;
            phones.push(Phone { name: name.clone(), end, stress: *stress });
        }
        from = span.end;
    }
    Some(phones)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(text, start or NaN for none, end)`
    fn words(timed_words: &[(&str, f64, f64)]) -> Vec<Word> {
        let word = |(text, begin, end): &(&str, f64, f64)| Word {
            text: (*text).to_owned(),
            begin: (!begin.is_nan()).then_some(*begin),
            end: *end,
        };
        timed_words.iter().map(word).collect()
    }

    fn sound(pause: f32, phones: &[(&str, f32)]) -> WordPronunciation {
        let phone = |(name, length): &(&str, f32)| PronouncedPhone {
            name: (*name).to_owned(),
            stress: false,
            length: *length,
        };
        WordPronunciation { pause, phones: phones.iter().map(phone).collect() }
    }

    fn phone_ends_ms(phones: &[Phone]) -> Vec<(&str, i32)> {
        phones.iter().map(|p| (p.name.as_str(), (p.end * 1e3).round() as i32)).collect()
    }

    const NONE: f64 = f64::NAN;

    #[test]
    fn phones_fill_their_word_in_the_proportion_of_their_lengths() {
        let sounds =
            [sound(0.0, &[("b", 0.1), ("iy", 0.3)]), sound(0.0, &[("m", 0.1), ("iy", 0.1)])];
        let spoken = words(&[("be", NONE, 1.2), ("me", NONE, 1.5)]);
        let phones = stretch_phones(1.0, &spoken, &sounds).unwrap();
        assert_eq!(
            phone_ends_ms(&phones),
            [("b", 1_050), ("iy", 1_200), ("m", 1_350), ("iy", 1_500)]
        );
    }

    #[test]
    fn a_pause_that_is_told_is_kept_and_a_moment_between_words_is_the_next_words() {
        let sounds =
            [sound(0.2, &[("b", 0.1), ("iy", 0.1)]), sound(0.0, &[("m", 0.1), ("iy", 0.1)])];
        let spoken = words(&[("be", 0.3, 0.5), ("me", 0.54, 0.7)]);
        let phones = stretch_phones(0.0, &spoken, &sounds).unwrap();
        assert_eq!(
            phone_ends_ms(&phones),
            [("pau", 300), ("b", 400), ("iy", 500), ("m", 600), ("iy", 700)]
        );
    }

    #[test]
    fn a_pause_that_is_not_told_takes_what_the_word_cannot_have_lasted() {
        let me = sound(0.0, &[("m", 0.1), ("iy", 0.1)]);
        let after_comma = sound(0.2, &[("m", 0.1), ("iy", 0.1)]);
        let sounds = [me.clone(), me.clone(), after_comma, me];
        let spoken =
            words(&[("me", NONE, 0.2), ("me,", NONE, 0.4), ("me", NONE, 0.9), ("me", NONE, 1.7)]);
        let phones = stretch_phones(0.0, &spoken, &sounds).unwrap();
        let wanted = [
            ("m", 100),
            ("iy", 200),
            ("m", 300),
            ("iy", 400),
            ("pau", 700),
            ("m", 800),
            ("iy", 900),
        ];
        assert_eq!(phone_ends_ms(&phones)[..7], wanted, "where flite pauses");
        assert_eq!(
            phone_ends_ms(&phones)[7..],
            [("pau", 1_500), ("m", 1_600), ("iy", 1_700)],
            "or it is far too long"
        );
    }

    #[test]
    fn words_without_time_of_their_own_share_their_neighbours() {
        let me = sound(0.0, &[("m", 0.1), ("iy", 0.1)]);
        let spoken = words(&[("me", NONE, 0.0), ("me", NONE, 0.4), ("me", 0.4, 0.4)]);
        let phones = stretch_phones(0.0, &spoken, &vec![me; 3]).unwrap();
        assert_eq!(phones.len(), 6);
        assert_eq!(phone_ends_ms(&phones)[5], ("iy", 400));
        assert!(phones.is_sorted_by(|a, b| a.end < b.end));
        let silent = words(&[("👍", NONE, 0.3)]);
        assert_eq!(
            phone_ends_ms(&stretch_phones(0.0, &silent, &[WordPronunciation::default()]).unwrap()),
            [("pau", 300)]
        );
        assert_eq!(stretch_phones(0.0, &[], &[]), Some(vec![]));
    }

    #[test]
    fn batches_follow_one_another() {
        let mut aligner = Aligner::default();
        let mut phones = aligner.phones(&words(&[("Maybe", 0.1, 0.4), ("Bob", 0.4, 0.7)])).unwrap();
        phones.extend(
            aligner.phones(&words(&[(" will", 1.0, 1.2), ("improve. ", 1.2, 1.7)])).unwrap(),
        );
        assert!(phones.is_sorted_by(|a, b| a.end < b.end), "{phones:?}");
        let names: Vec<&str> = phones.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.join(" "), "pau m ey b iy b aa b pau w ih l ih m p r uw v");
        assert_eq!(phone_ends_ms(&phones)[8], ("pau", 1_000));
        let stressed: Vec<usize> = (0..phones.len()).filter(|at| phones[*at].stress).collect();
        assert_eq!(stressed, [2, 6, 16], "may-, Bob, -prove, but not \"will\"");
        assert_eq!(phone_ends_ms(&phones).last(), Some(&("v", 1_700)));
    }

    #[test]
    fn what_a_voice_calls_a_word_may_be_several_or_a_mark() {
        let spoken = words(&[("New York", NONE, 0.6), (",", NONE, 0.8), ("Bob", NONE, 1.1)]);
        let phones = Aligner::default().phones(&spoken).unwrap();
        let names: Vec<&str> = phones.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.join(" "), "n uw y ao r k pau b aa b");
        assert_eq!(phone_ends_ms(&phones)[6], ("pau", 800));
    }

    #[test]
    fn words_that_flite_cannot_place_have_no_phones() {
        let mut aligner = Aligner::default();
        for bad in [
            &[("Bob", NONE, NONE)][..],
            &[("Bob", NONE, f64::INFINITY)],
            &[("Bob", -0.5, 0.3)],
            &[("Bob", 0.5, 0.3)],
            &[("Bob", NONE, 0.5), ("and", NONE, 0.3)],
            &[("Bob", NONE, 300.0), ("and", NONE, 500.0), ("I", NONE, 550.0)],
            &[("東京", NONE, 0.5)],
            &[("Größe", NONE, 0.5), ("zählt", NONE, 0.9)],
        ] {
            assert!(aligner.phones(&words(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(aligner.phones(&[]), Ok(vec![]));
        assert!(Aligner::default().phones(&words(&[("Bob", NONE, 0.3)])).is_ok());
    }
}
