//! Lip motion for a voice that reports words but no phones.

use cpu_time::ThreadTime;

use conversation::time::Position;
use engine::speak::tts::SynthesisEvent;
use models::tts::{Aligner, Event, Phone, Voice, Word};

use crate::lips::{self, CLOSURE_TOLERANCE, LipComparison, closures, is_closure};
use crate::noise::seed_voice_noise;
use crate::{SpokenSentence, collect_phones, run_tts_sink, sentences, synthesize};

/// The words of a sentence with start times, as from a vendor whose words exclude pauses.
fn words_with_starts(sentence: &SpokenSentence) -> Vec<Word> {
    let pauses: Vec<f64> =
        sentence.phones.iter().filter(|p| p.name == "pau").map(|p| f64::from(p.end)).collect();
    let mut from = 0.0;
    let placed = sentence.words.iter().map(|word| {
        let begin =
            pauses.iter().copied().find(|end| (from..word.end).contains(end)).unwrap_or(from);
        from = word.end;
        Word { begin: Some(begin), ..word.clone() }
    });
    placed.collect()
}

/// The words without start times; each end is off by up to 50 ms in either direction.
fn words_with_jitter(sentence: &SpokenSentence) -> Vec<Word> {
    let mut last: f64 = 0.0;
    let placed = sentence.words.iter().zip(sentence.phones.len()..).map(|(word, n)| {
        last = last.max(word.end + ((n * 7_919 % 101) as f64 - 50.0) * 1e-3);
        Word { text: word.text.clone(), begin: None, end: last }
    });
    placed.collect()
}

/// The phones for a voice that reports these words before its first audio, and no phones.
fn phones_from_words(sentence: &SpokenSentence, words: Vec<Word>) -> Vec<Phone> {
    collect_phones(&run_tts_sink(true, sentence, vec![(0, Event::Words(words))]))
}

/// Matches for one of the phones that shut the lips.
#[derive(Default)]
struct ClosureMatches {
    /// All closures, and those whose middle is within [`CLOSURE_TOLERANCE`] of the middle of a
    /// shown one.
    total: usize,
    matched: usize,
}

/// Mean distance in seconds between the middle of each spoken closure and that of the nearest shown
/// one (each capped at 0.2), and the matches for each of `p b m f v`.
fn closure_offsets(
    sentences: &[SpokenSentence],
    shown: &[Vec<Phone>],
) -> (f32, [ClosureMatches; 5]) {
    let middle = |(start, end): (f32, f32)| f32::midpoint(start, end);
    let mut found: [ClosureMatches; 5] = Default::default();
    let mut sum = 0.0;
    for (sentences, shown) in sentences.iter().zip(shown) {
        let shown = closures(shown);
        let names =
            sentences.phones.iter().map(|p| p.name.as_str()).filter(|name| is_closure(name));
        for (name, closure) in names.zip(closures(&sentences.phones)) {
            let off =
                shown.iter().map(|c| (middle(*c) - middle(closure)).abs()).fold(0.2, f32::min);
            let of = &mut found["pbmfv".find(name).unwrap()];
            of.total += 1;
            of.matched += usize::from(off <= CLOSURE_TOLERANCE);
            sum += off;
        }
    }
    let all: usize = found.iter().map(|f| f.total).sum();
    (sum / all as f32, found)
}

/// Prints the scores of these phones. Returns r of the jaw opening, the share of closures that are
/// shut, and their mean offset in seconds.
fn print_scores(what: &str, sentence: &[SpokenSentence], shown: &[Vec<Phone>]) -> (f64, f64, f32) {
    let mut comparison = LipComparison::default();
    for (sentence, shown) in sentence.iter().zip(shown) {
        comparison.add(&sentence.phones, shown);
    }
    let (all, shut) = comparison.count_closures();
    let part = shut as f64 / all as f64;
    let (off, found) = closure_offsets(sentence, shown);
    let each: Vec<String> = std::iter::zip(["p", "b", "m", "f", "v"], found)
        .map(|(name, f)| format!("{name} {:.0}", f.matched as f64 * 100.0 / f.total as f64))
        .collect();
    let near = each.join(", ");
    let (r, invented, minutes) =
        (comparison.jaw_correlation(0.0), comparison.false_closures(), comparison.seconds() / 60.0);
    println!(
        "{what}: r = {r:.2}, {:.1} % of {all} shut, middles off by {:.0} ms, {invented} invented \
         in {minutes:.1} minutes, middles within 40 ms in %: {near}",
        part * 100.0,
        off * 1e3,
    );
    (r, part, off)
}

#[test]
fn lips_that_are_made_of_words_follow_the_phones() {
    let _alone = seed_voice_noise();
    assert_word_lips_follow(&sentences()[..32]);
}

#[test]
#[ignore = "long: faces"]
fn long_faces_lips_that_are_made_of_the_words_of_two_hundred_sentences_follow_the_phones() {
    let _alone = seed_voice_noise();
    assert_word_lips_follow(&sentences());
}

fn assert_word_lips_follow(sentences: &[String]) {
    // Flite also speaks these words, so the phone lengths within a word must come from another
    // voice: from kal16 for the other voices, from slt for kal16. For each voice, the minimum r of
    // the jaw opening, the minimum share of closures that are shut, and their maximum offset in
    // seconds.
    let bounds = [
        ("slt", 0.80, 0.97, 0.025),
        ("rms", 0.80, 0.98, 0.021),
        ("awb", 0.86, 0.98, 0.019),
        ("kal16", 0.86, 0.98, 0.022),
    ];
    let sentence = synthesize(sentences, &bounds.map(|(voice, ..)| voice));
    for ((voice, min_r, part, max_offset), sentence) in bounds.into_iter().zip(sentence) {
        let phones_of = |words: fn(&SpokenSentence) -> Vec<Word>| -> Vec<Vec<Phone>> {
            let lips = |sentence: &SpokenSentence| match voice {
                "kal16" => Aligner::new(Voice::Slt).phones(&words(sentence)).unwrap(),
                _ => phones_from_words(sentence, words(sentence)),
            };
            sentence.iter().map(lips).collect()
        };
        let sound: Vec<_> = sentence
            .iter()
            .map(|sentence| lips::phones_from_audio(&sentence.pcm, sentence.sample_rate))
            .collect();
        let (_, by_sound, _) = print_scores(&format!("{voice}, sound"), &sentence, &sound);
        let ends: fn(&SpokenSentence) -> Vec<Word> = |sentence| sentence.words.clone();
        for (what, words) in [("ends", ends), ("begins and ends", words_with_starts)] {
            let (r, shut, off) =
                print_scores(&format!("{voice}, {what} of words"), &sentence, &phones_of(words));
            assert!(r >= min_r && shut >= part, "{voice}, {what}: r = {r}, {shut} shut");
            assert!(off <= max_offset, "{voice}, {what}: {off} s off");
            assert!(
                shut + 0.01 >= by_sound,
                "{voice}, {what}: {shut} shut, from its sound {by_sound}"
            );
        }
        let (_, shut, _) = print_scores(
            &format!("{voice}, ends that are off by up to 50 ms"),
            &sentence,
            &phones_of(words_with_jitter),
        );
        assert!(shut >= 0.95, "{voice}, with times that are off: {shut} shut");
    }
    let start = ThreadTime::now();
    for text in sentences {
        let words = text.split(' ').enumerate();
        let words: Vec<Word> = words
            .map(|(n, w)| Word { text: w.into(), begin: None, end: 0.3 * (n + 1) as f64 })
            .collect();
        Aligner::default().phones(&words).unwrap();
    }
    println!("{:?} of work for a sentence", start.elapsed() / sentences.len() as u32);
}

#[test]
fn a_voice_that_tells_words_has_lips_by_them_from_when_it_tells_them() {
    let _alone = seed_voice_noise();
    let sentence = &synthesize(
        &["Maybe Bob will improve the map before my mother moves above the farm.".to_owned()],
        &["slt"],
    )[0][0];
    let sound = collect_phones(&run_tts_sink(true, sentence, vec![]));
    let aligned = Aligner::default().phones(&sentence.words).unwrap();
    let last = aligned.last().unwrap().end;
    let by = |words: &[(usize, &[Word])]| {
        let events =
            words.iter().map(|(before, words)| (*before, Event::Words(words.to_vec()))).collect();
        run_tts_sink(true, sentence, events)
    };

    let all = by(&[(0, &sentence.words)]);
    let first = all.iter().position(|n| matches!(n, SynthesisEvent::Samples(_))).unwrap();
    assert_eq!(collect_phones(&all[..first]), aligned, "known before any sound leaves");
    let rest = &collect_phones(&all)[aligned.len()..];
    assert!(
        rest.iter().all(|p| p.end > last),
        "after the words, phones come from the audio: {rest:?}"
    );
    assert!((collect_phones(&all).last().unwrap().end - sound.last().unwrap().end).abs() < 0.011);
    let halves = by(&[(0, &sentence.words[..5]), (0, &sentence.words[5..])]);
    assert_eq!(collect_phones(&halves), collect_phones(&all), "words that wait are one batch");

    // The first words arrive late, the others in time.
    let (some, others) = sentence.words.split_at(6);
    let parts = collect_phones(&by(&[(5, some), (9, others)]));
    assert!(parts.is_sorted_by(|a, b| a.end < b.end), "{parts:?}");
    let known = parts
        .iter()
        .take_while(|p| sound.contains(p))
        .last()
        .expect("read from the audio before the words arrived")
        .end;
    assert!((0.3..0.5).contains(&known), "{known} s of .5 s were read");
    let mut aligner = Aligner::default();
    let mut wanted = aligner.phones(some).unwrap();
    wanted.extend(aligner.phones(others).unwrap());
    wanted.retain(|p| p.end > known);
    let reported: Vec<Phone> =
        parts.into_iter().filter(|p| p.end > known && p.end <= last).collect();
    assert_eq!(reported, wanted);

    let foreign: Vec<Word> =
        sentence.words.iter().map(|word| Word { text: "größer".into(), ..word.clone() }).collect();
    assert_eq!(
        collect_phones(&by(&[(0, &foreign)])),
        sound,
        "not English: phones come from the audio"
    );
    assert_eq!(
        collect_phones(&by(&[(0, &foreign[..4]), (0, &sentence.words[4..])])),
        collect_phones(&by(&[(0, &sentence.words[..0])]))
    );
    let none: Vec<Word> =
        sentence.words.iter().map(|word| Word { end: f64::NAN, ..word.clone() }).collect();
    assert_eq!(collect_phones(&by(&[(0, &none)])), sound, "no times: phones come from the audio");

    let reported = |before| (before, Event::Phones(sentence.phones.clone()));
    let words = |before| (before, Event::Words(sentence.words.clone()));
    assert_eq!(
        collect_phones(&run_tts_sink(true, sentence, vec![words(0), reported(0)])),
        sentence.phones,
        "phones have priority"
    );
    assert_eq!(
        collect_phones(&run_tts_sink(true, sentence, vec![reported(0), words(0), words(3)])),
        sentence.phones
    );
    assert_eq!(
        collect_phones(&run_tts_sink(false, sentence, vec![words(0)])),
        [],
        "without an avatar, no phones are sent"
    );
    for lips in [true, false] {
        let events = run_tts_sink(lips, sentence, vec![words(0)]);
        let times = events
            .iter()
            .find_map(|n| if let SynthesisEvent::Words(words) = n { Some(words) } else { None });
        let wanted = sentence.words.iter().map(|w| (w.text.clone(), Position::from_seconds(w.end)));
        assert_eq!(times.cloned(), Some(wanted.collect()), "the heard text is dated by them");
    }
}
