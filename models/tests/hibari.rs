//! The voice Hibari through the trait that the engine uses.
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;
#[path = "common/replies.rs"]
mod replies;
#[path = "common/hibari.rs"]
mod voice;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::unbounded;
use models::stt::{Moonshine, MoonshineConfig, Stt, moonshine};
use models::tts::{Event, Flite, Hibari, Phone, Request, Tts, hibari};
use models::{ErrorKind, Sink};
use replies::{REPLIES, transcribe};
use voice::{load, loudness, request, speak, to_16_khz};

/// Phones that flite's voices use: the CMU phone set.
const PHONES: &str = "aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p \
    pau r s sh t th uh uw v w y z zh";

/// The voice of the tests that may run beside others.
fn shared_voice() -> &'static Hibari {
    static VOICE: OnceLock<Hibari> = OnceLock::new();
    VOICE.get_or_init(|| load(2))
}

#[test]
fn words_and_phones_come_before_the_first_sound() {
    let voice = shared_voice();
    let speech = speak(voice, "Hello, it's Dr. Smith's e-mail.", &[]);
    assert_eq!(speech.texts(), ["Hello,", "it's", "Dr.", "Smith's", "e-mail."]);
    assert_eq!(speech.words_before_audio, 5);
    assert_eq!(speech.phones_before_audio, speech.phones.len());
    assert!(speech.words.is_sorted_by(|a, b| a.1 < b.1), "{:?}", speech.words);
    assert!(speech.phones.is_sorted_by(|a, b| a.end <= b.end));
    let known: Vec<&str> = PHONES.split(' ').collect();
    assert!(speech.phones.iter().all(|phone| known.contains(&phone.name.as_str())));
    assert!(speech.phone_names().starts_with("pau hh ax l ow"), "{}", speech.phone_names());
    assert!(speech.words[4].1 < speech.seconds(), "a pause follows the last word");
    assert!(loudness(&speech.pcm, 24_000) > 500.0, "it is audible");
}

/// For each word, which of its vowels is stressed, counted from 1; 0 = none.
fn stressed_vowels(phones: &[Phone], words: &[(String, f64)]) -> Vec<usize> {
    let starts = std::iter::once(0.0).chain(phones.iter().map(|phone| f64::from(phone.end)));
    let timed: Vec<(f64, &Phone)> = starts.zip(phones).collect();
    let mut from = 0.0;
    let stressed = |(_, end): &(String, f64)| {
        // A blank after a word may belong to its last phone.
        let range = from - 1e-4..end - 1e-4;
        from = *end;
        let word = timed.iter().filter(|(start, _)| range.contains(start));
        let mut vowels = word.filter(|(_, phone)| "aeiou".contains(&phone.name[..1]));
        vowels.position(|(_, phone)| phone.stress).map_or(0, |at| at + 1)
    };
    words.iter().map(stressed).collect()
}

#[test]
fn both_voices_stress_the_same_syllables_where_their_dictionaries_agree() {
    let words = "Hello 2 people. 1 You 0 remember 2 the 0 information 3 and 0 questions 1 about 0 \
        university 3 music, 1 again 2 and 0 again. 2 Tomorrow's 2 conversation 3 with 0 seven 1 \
        photographers 2 was 0 completely 2 beautiful. 1 I 0 don't 1 agree 2 to 0 computers. 2";
    let (texts, expected): (Vec<&str>, Vec<usize>) = words
        .split_whitespace()
        .collect::<Vec<_>>()
        .chunks(2)
        .map(|pair| (pair[0], pair[1].parse::<usize>().unwrap()))
        .unzip();
    let text = texts.join(" ");
    let hibari = speak(shared_voice(), &text, &[]);
    let (sender, events) = unbounded();
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let flite = Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
    let _handle = flite.speak(Request { text, ..Request::default() }, sink).unwrap();
    let (mut phones, mut words) = (Vec::new(), Vec::new());
    for event in events.iter().take_while(|event| !matches!(event, Event::End)) {
        match event {
            Event::Phones(more) => phones.extend(more),
            Event::Words(more) => words.extend(more.into_iter().map(|w| (w.text, w.end))),
            _ => {}
        }
    }
    for (voice, phones, words) in
        [("hibari", &hibari.phones, &hibari.words), ("flite", &phones, &words)]
    {
        let found: Vec<_> = texts.iter().zip(stressed_vowels(phones, words)).collect();
        let expected: Vec<_> = texts.iter().zip(expected.iter().copied()).collect();
        assert_eq!(found, expected, "{voice}");
    }
}

#[test]
fn the_phones_last_as_long_as_the_sound_and_lie_where_it_is() {
    let voice = shared_voice();
    for text in ["Yes.", "Hello, how are you today?", "Please wait; I am looking for it now."] {
        let speech = speak(voice, text, &[]);
        let last = speech.phones.last().unwrap();
        assert!((speech.seconds() - f64::from(last.end)).abs() < 1e-3, "{text}");
        // The vowels are louder than the pauses.
        let (mut begin, mut vowels, mut pauses) = (0.0, Vec::new(), Vec::new());
        for phone in &speech.phones {
            let at = |seconds: f32| (seconds * 24_000.0) as usize;
            let sound = &speech.pcm[at(begin)..at(phone.end).min(speech.pcm.len())];
            match phone.name.as_str() {
                "pau" => pauses.extend_from_slice(&sound[sound.len() / 4..sound.len() / 2]),
                name if "aeiou".contains(&name[..1]) => vowels.extend_from_slice(sound),
                _ => {}
            }
            begin = phone.end;
        }
        let [vowels, pauses] = [vowels, pauses].map(|pcm| loudness(&pcm, 24_000));
        println!("{text}: vowels {vowels:.0}, pauses {pauses:.0}");
        assert!(vowels > 10.0 * pauses, "{text}: vowels {vowels:.0}, pauses {pauses:.0}");
    }
}

#[test]
fn a_long_text_goes_on_in_parts_with_one_time_line() {
    let voice = shared_voice();
    let text = "This is a sentence of some length, as people say it when they explain a thing to \
        somebody who has never heard of it before, and who therefore listens, waits, and asks; it \
        has several clauses, as you can hear. And this 👍 is the next one — it costs $3.50!\n\
        - a list\n- of things. "
        .repeat(3);
    let speech = speak(voice, &text, &[]);
    assert_eq!(speech.texts(), text.split_whitespace().collect::<Vec<_>>());
    assert!(speech.words.is_sorted_by(|a, b| a.1 <= b.1));
    assert!(speech.phones.is_sorted_by(|a, b| a.end <= b.end));
    assert!((speech.seconds() - f64::from(speech.phones.last().unwrap().end)).abs() < 1e-3);
    assert!(speech.words_before_audio < 40, "the first sound does not wait for the whole text");
    assert!(speech.words.last().unwrap().1 < speech.seconds());
    assert!((20.0..120.0).contains(&speech.seconds()), "{} s", speech.seconds());
}

#[test]
fn the_same_text_sounds_the_same_on_any_thread() {
    let voice = load(2);
    let all: Vec<_> =
        (0..6).map(|_| request(&voice, "Six of these run at a time, two by two.", &[])).collect();
    let mut sounds = all.iter().map(|(_, events)| {
        let until_end = events.iter().take_while(|event| !matches!(event, Event::End));
        until_end
            .flat_map(|event| if let Event::Audio { pcm, .. } = event { pcm } else { Vec::new() })
            .collect::<Vec<i16>>()
    });
    let first = sounds.next().unwrap();
    assert!(first.len() > 24_000);
    assert!(sounds.all(|sound| sound == first));
}

#[test]
fn a_word_is_pronounced_as_listed() {
    let voice = shared_voice();
    let list = [("Quux", "koox")];
    let speech = speak(voice, "Ask QUUX now.", &list);
    assert_eq!(speech.texts(), ["Ask", "QUUX", "now."]);
    let plain = speak(voice, "Ask koox now.", &[]);
    assert_eq!(speech.phone_names(), plain.phone_names());
    assert_ne!(speech.phone_names(), speak(voice, "Ask QUUX now.", &[]).phone_names());
}

#[test]
fn a_cancelled_request_stops_before_its_end() {
    let voice = load(1);
    let text = "This text is long enough to be cancelled in the middle of it. ".repeat(200);
    let (handle, events) = request(&voice, &text, &[]);
    let (waiting, waiting_events) = request(&voice, "This one waits.", &[]);
    assert!(events.iter().any(|event| matches!(event, Event::Audio { .. })));
    assert_eq!(voice.queue_usage().0, 1);
    drop(waiting);
    assert_eq!(voice.queue_usage().0, 0, "it has left the queue");
    handle.cancel();
    // The thread is free for the next request, whose events follow the last ones of the cancelled
    // request.
    assert_eq!(speak(&voice, "Next.", &[]).words.len(), 1);
    let rest: Vec<Event> = events.try_iter().collect();
    assert!(!rest.iter().any(|event| matches!(event, Event::End | Event::Failed(_))));
    let samples: usize =
        rest.iter().map(|e| if let Event::Audio { pcm, .. } = e { pcm.len() } else { 0 }).sum();
    assert!(samples < 24_000 * 300, "{samples} samples came after the cancel");
    assert!(waiting_events.try_iter().next().is_none(), "nothing was spoken of it");
}

#[test]
fn empty_and_huge_texts_are_refused_and_marks_alone_are_a_moment_of_silence() {
    let voice = shared_voice();
    for text in ["", " \n ", &"long ".repeat(5_000)] {
        let (_handle, events) = request(voice, text, &[]);
        assert!(
            matches!(events.recv(), Ok(Event::Failed(e)) if e.kind() == ErrorKind::Rejected),
            "{} bytes",
            text.len()
        );
        assert!(events.recv().is_err(), "nothing follows");
    }
    let speech = speak(voice, "👍 ...", &[]);
    assert_eq!(speech.texts(), ["👍", "..."]);
    assert!(speech.seconds() < 0.05 && speech.pcm.iter().all(|x| *x == 0));
}

#[test]
fn no_text_crashes_the_voice() {
    let voice = shared_voice();
    let endless = "a".repeat(5_000);
    let hyphens = "x-".repeat(1_000);
    let odd = [
        "a",
        "I'm 5'6\" tall & I'd",
        "( ) [ ] { }  a",
        "12345678901234567890123 3/4 50% #1 +1-800-555-0199",
        "x@y.com http://a.b/c?d=e&f",
        "$$ 5 1.2.3.4 ...a",
        "zzzzxqw rhythm hmm pfft",
        "Ünïcödé 漢字 и русский a",
        "\u{0}zero\u{0} byte",
        "<speak>tags</speak>",
        "— — —",
        "a\n\nb\n\n\nc",
        "👩‍🚀🇩🇪",
        &endless,
        &hyphens,
    ];
    for text in odd {
        let speech = speak(voice, text, &[]);
        assert_eq!(speech.words.len(), text.split_whitespace().count(), "{text:?}");
        assert!(speech.words.iter().all(|(_, end)| *end <= speech.seconds()), "{text:?}");
        assert!(!speech.pcm.is_empty() && speech.seconds() < 1_200.0, "{text:?}");
    }
}

/// A text of about 5,000 characters.
#[test]
fn five_thousand_characters_are_spoken_completely() {
    let voice = shared_voice();
    let text = "Room 12 opens at 9:30 am; tickets are £1,200 each. ".repeat(98);
    assert!(text.len() > 4_900);
    let speech = speak(voice, &text, &[]);
    assert_eq!(speech.texts(), text.split_whitespace().collect::<Vec<_>>());
    assert!(speech.words.windows(2).all(|pair| pair[0].1 < pair[1].1));
}

#[test]
fn the_voice_is_as_loud_as_those_of_flite() {
    let voice = shared_voice();
    let text = common::SENTENCES.map(|sentence| format!("{sentence}. ")).concat();
    let own = speak(voice, &text, &[]);
    let own = loudness(&own.pcm, 24_000);
    let others =
        ["slt", "rms", "awb"].map(|name| loudness(&common::synthesise(&text, name), 16_000));
    println!("Hibari {own:.0}, slt, rms and awb {others:.0?}");
    let mean = others.iter().sum::<f64>() / 3.0;
    let decibels = 20.0 * (own / mean).log10();
    assert!(decibels.abs() < 1.5, "{decibels:.1} dB louder");
}

#[test]
fn it_has_its_voice_under_its_name_only() {
    let voice = shared_voice();
    assert!(voice.has_voice("heart") && voice.has_voice("") && !voice.has_voice("slt"));
    assert_eq!((hibari::PROVIDER, hibari::VOICES[0].name), ("hibari", "heart"));
    assert!(hibari::VOICES[0].is_female && hibari::VOICES[0].language == "en-US");
}

/// CPU time of the voice's thread from the end of one text to the first audio of the next.
#[test]
fn the_first_sound_takes_little_work() {
    let voice = load(1);
    let spoken = |text: &str| {
        let (sender, receiver) = unbounded();
        let sink = Sink::new(move |event| {
            let at = common::ThreadClock::current().cpu_time();
            sender.send((matches!(event, Event::Audio { .. }), at)).unwrap_or_default();
        });
        let request = Request { text: text.into(), voice: "".into(), ..Request::default() };
        let _handle = voice.speak(request, sink).unwrap();
        receiver.into_iter().collect::<Vec<_>>()
    };
    let short = "Certainly, I can help you with that.";
    let long = "It opens at nine, closes at five, and is free on the first Sunday of each month. "
        .repeat(40);
    for text in [short, &long] {
        let (before, after) = (spoken(short), spoken(text));
        let first = after.iter().find(|(sound, _)| *sound).expect("sound").1;
        let took = first - before.last().unwrap().1;
        println!("{} bytes: first sound after {took:?} of work", text.len());
        assert!(took < Duration::from_millis(400), "{took:?}");
    }
}

#[test]
fn a_model_that_is_missing_or_damaged_is_named_with_the_way_to_get_it() {
    let dir = std::env::temp_dir().join(format!("visavis-hibari-{}", std::process::id()));
    let put = |path: PathBuf, content: &[u8]| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let error = || hibari::check_installed(&dir).unwrap_err();
    assert!(error().contains("libonnxruntime.so is missing"), "{}", error());
    assert!(error().contains("run `make setup`"), "{}", error());
    put(models::paths::onnx_runtime(&dir), b"something else");
    let voice = models::manifest::all().iter().find(|model| model.folder == "hibari").unwrap();
    for file in voice.files.iter().filter(|file| file.sha256().is_some()) {
        let name = file.path.as_str();
        let missing = error();
        assert!(missing.contains(&format!("{name} is missing: run `make setup`")), "{missing}");
        put(models::paths::hibari(&dir).join(name), b"something else");
        let damaged = error();
        assert!(damaged.contains(name) && damaged.contains("its SHA-256 is"), "{damaged}");
        let whole = models::paths::hibari(&common::models_dir()).join(name);
        std::fs::copy(whole, models::paths::hibari(&dir).join(name)).unwrap();
    }
    assert_eq!(hibari::check_installed(&dir), Ok(()));
    let cut = std::fs::read(models::paths::hibari(&dir).join("hibari.onnx")).unwrap();
    put(models::paths::hibari(&dir).join("hibari.onnx"), &cut[..cut.len() / 2]);
    let failure = Hibari::load(&dir, 1).map(drop).unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::NotAvailable);
    assert!(failure.to_string().contains("hibari.onnx is not the file of"), "{failure}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_recognizer_understands_the_voice() {
    let dir = common::models_dir();
    if let Err(why) = moonshine::check_installed(&dir) {
        return eprintln!("LEFT OUT, it proves nothing here: {why}");
    }
    let recognizer = Moonshine::start(MoonshineConfig { dir, workers: 1 }).unwrap();
    common::wait_for(|| !recognizer.is_loading());
    let (sender, events) = unbounded();
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let mut stream = recognizer.open(sink).unwrap_or_else(|e| panic!("{e}"));
    let voice = shared_voice();
    let (mut wrong, mut words) = (0, 0);
    for reply in REPLIES {
        let mut pcm = vec![0; 4_000];
        pcm.extend(to_16_khz(&speak(voice, reply, &[]).pcm));
        pcm.resize(pcm.len() + 4_000, 0);
        let text = transcribe(&mut *stream, &events, &pcm);
        let errors = common::word_errors(reply, &text);
        if errors > 0 {
            println!("{errors} wrong: {text:?} for {reply:?}");
        }
        wrong += errors;
        words += reply.split_whitespace().count();
    }
    println!("{wrong} of {words} words wrong");
    assert!(wrong * 100 <= words * 7, "{wrong} of {words} words wrong");
}
