//! PocketSphinx through the trait that the engine uses, with speech from Flite.
#![allow(clippy::print_stdout)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use models::stt::{Event, PocketSphinxConfig, PocketSphinxPool, Stt, SttStream};
use models::{ErrorKind, Sink};

/// Waits until all decoders are loaded.
fn loaded_pool(decoders: usize) -> PocketSphinxPool {
    let pool = PocketSphinxPool::start(PocketSphinxConfig { dir: common::models_dir(), decoders });
    common::wait_for(|| !pool.is_loading());
    assert_eq!((pool.loaded_count(), pool.failure()), (decoders, None));
    pool
}

fn open(pool: &PocketSphinxPool) -> (Box<dyn SttStream>, Receiver<Event>) {
    let (sender, receiver) = unbounded();
    let stream = pool.open(Sink::new(move |event| sender.send(event).unwrap_or_default()));
    (stream.unwrap_or_else(|e| panic!("{e}")), receiver)
}

/// Interim and final transcripts of `pcm`, passed in frames of 20 ms.
fn transcribe(
    stream: &mut dyn SttStream,
    events: &Receiver<Event>,
    pcm: &[i16],
) -> (Vec<String>, String) {
    stream.start_speech();
    for frame in pcm.chunks(320) {
        stream.push_audio(frame);
    }
    stream.end_speech();
    let mut interims = Vec::new();
    loop {
        match events.recv_timeout(common::HANG_TIMEOUT).expect("an answer") {
            Event::Interim(text) => interims.push(text),
            Event::Final(text) => return (interims, text),
            other => panic!("{other:?}"),
        }
    }
}

/// Asserts that at most a fifth of the words of each of two voices is misrecognized.
fn assert_understood(sentences: &[&str]) {
    let pool = loaded_pool(1);
    for voice in ["slt", "rms"] {
        // As in two calls: each starts with a fresh channel.
        let (mut stream, events) = open(&pool);
        let (mut wrong, mut words) = (0, 0);
        for sentence in sentences {
            let (interims, text) =
                transcribe(&mut *stream, &events, &common::synthesise(sentence, voice));
            let errors = common::word_errors(sentence, &text);
            println!("{voice}: {errors} wrong in {text:?}");
            assert!(!interims.is_empty(), "{voice}: interim transcripts arrive during speech");
            wrong += errors;
            words += sentence.split_whitespace().count();
        }
        let rate = wrong as f64 / words as f64;
        println!("{voice}: word error rate {rate:.3}");
        assert!(rate <= 0.2, "{voice}: {wrong} of {words} words are wrong");
    }
}

#[test]
fn sentences_of_two_voices_are_understood() {
    assert_understood(&common::SENTENCES[..3]);
}

#[test]
#[ignore = "long: providers"]
fn long_providers_all_sentences_of_two_voices_are_understood() {
    assert_understood(&common::SENTENCES);
}

#[test]
fn sound_without_words_gives_an_empty_final() {
    let pool = loaded_pool(1);
    let (mut stream, events) = open(&pool);
    assert_eq!(transcribe(&mut *stream, &events, &[]).1, "", "no sound");
    assert_eq!(transcribe(&mut *stream, &events, &[0; 16_000]).1, "", "silence");
    for peak in [300.0, 8_000.0] {
        let noise = common::white_noise(1, 16_000, peak);
        assert_eq!(
            transcribe(&mut *stream, &events, &noise),
            (vec![], String::new()),
            "noise of {peak}"
        );
    }
}

#[test]
fn a_speaker_does_not_spoil_the_next_ones_words() {
    let pool = loaded_pool(1);
    let speech = common::synthesise(common::SENTENCES[0], "slt");
    let first = {
        let (mut stream, events) = open(&pool);
        transcribe(&mut *stream, &events, &speech).1
    };
    {
        // A caller with a very noisy connection.
        let (mut stream, events) = open(&pool);
        let noise = common::white_noise(7, 10 * 16_000, 8_000.0);
        transcribe(&mut *stream, &events, &noise);
    }
    let (mut stream, events) = open(&pool);
    assert_eq!(transcribe(&mut *stream, &events, &speech).1, first);
}

#[test]
fn a_call_without_a_decoder_is_refused_and_gets_the_one_that_comes_free() {
    let pool = loaded_pool(1);
    let (mut stream, _) = open(&pool);
    assert_eq!(pool.free_count(), 0);
    let refused = pool.open(Sink::new(|_| ())).err().expect("refused");
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        (ErrorKind::Busy, "all 1 STT decoders are in use")
    );
    // Returned in the middle of a speech segment, and taken at once: nothing of the old call
    // reaches the new one.
    stream.start_speech();
    for frame in common::synthesise(common::SENTENCES[1], "rms").chunks(320) {
        stream.push_audio(frame);
    }
    drop(stream);
    let (mut stream, events) = open(&pool);
    assert_eq!(transcribe(&mut *stream, &events, &[0; 8_000]), (vec![], String::new()));
}

#[test]
fn a_pool_that_is_still_loading_or_cannot_load_says_so() {
    let pool =
        PocketSphinxPool::start(PocketSphinxConfig { dir: common::models_dir(), decoders: 1 });
    if pool.is_loading() {
        let error = pool.open(Sink::new(|_| ())).err();
        assert!(error.is_none_or(|e| e.kind() == ErrorKind::Busy), "busy while it loads");
    }
    let nowhere = PocketSphinxPool::start(PocketSphinxConfig {
        dir: "no/such/directory".into(),
        decoders: 1,
    });
    common::wait_for(|| !nowhere.is_loading());
    let error = nowhere.open(Sink::new(|_| ())).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::NotAvailable);
    assert!(error.to_string().contains("make setup"), "{error}");
    assert_eq!(nowhere.loaded_count(), 0);
}

#[test]
fn damaged_models_are_refused_before_the_library_sees_them() {
    let dir = std::env::temp_dir().join(format!("visavis-damaged-models-{}", std::process::id()));
    let copy = dir.join("pocketsphinx");
    std::fs::create_dir_all(copy.join("en-us")).unwrap();
    let source = models::paths::pocketsphinx(&common::models_dir());
    for file in ["en-us.dict", "en-us.lm.bin"] {
        std::os::unix::fs::symlink(source.join(file), copy.join(file)).unwrap();
    }
    for entry in std::fs::read_dir(source.join("en-us")).unwrap().flatten() {
        std::fs::copy(entry.path(), copy.join("en-us").join(entry.file_name())).unwrap();
    }
    std::fs::write(copy.join("en-us/mdef"), b"cut short").unwrap();
    let reason = models::stt::pocketsphinx::check_installed(&dir).unwrap_err();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(reason.contains("mdef has 9 bytes"), "{reason}");
}

/// Transcript of a long speech segment, passed as fast as it is decoded, and the maximum number of
/// words of an interim transcript.
fn transcribe_long(pcm: &[i16]) -> (String, usize) {
    let pool = loaded_pool(1);
    let (mut stream, events) = open(&pool);
    stream.start_speech();
    for frame in pcm.chunks(320) {
        stream.push_audio(frame);
        // The queue holds 40 s.
        common::wait_for(|| pool.queue_usage().0 < 1000);
    }
    stream.end_speech();
    let mut max_interim_words = 0;
    loop {
        match events.recv_timeout(common::HANG_TIMEOUT).expect("an answer") {
            Event::Final(text) => return (text, max_interim_words),
            Event::Interim(text) => {
                max_interim_words = max_interim_words.max(text.split_whitespace().count())
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_speech_of_longer_than_an_utterance_may_be_keeps_the_words_before_and_after() {
    // An utterance is ended after 30 s.
    let (first, last) = (common::SENTENCES[0], common::SENTENCES[1]);
    let mut pcm = common::synthesise(first, "slt");
    pcm.resize(31 * 16_000, 0);
    pcm.extend(common::synthesise(last, "slt"));
    let text = transcribe_long(&pcm).0;
    let spoken = format!("{first} {last}");
    let (wrong, words) = (common::word_errors(&spoken, &text), spoken.split_whitespace().count());
    assert!(wrong * 4 < words, "{wrong} of {words} words wrong in {text:?}");
}

#[test]
#[ignore = "long: providers"]
fn long_providers_a_speech_without_a_pause_for_longer_than_an_utterance_may_be_keeps_its_words() {
    let sentence = common::synthesise(common::SENTENCES[0], "slt");
    let mut pcm = Vec::new();
    while pcm.len() < 35 * 16_000 {
        pcm.extend(&sentence);
    }
    let (text, max_interim_words) = transcribe_long(&pcm);
    let words = text.split_whitespace().count();
    let spoken = pcm.len() / sentence.len() * common::SENTENCES[0].split_whitespace().count();
    assert!(
        words > spoken * 3 / 4 && words + 3 > max_interim_words,
        "{words} of {spoken} words, {max_interim_words} in the interims"
    );
}

/// After the last sample the decoder has little work left, so that the turn need not wait for the
/// final transcript.
#[test]
fn little_work_is_left_at_the_end_of_sound_that_comes_as_it_is_spoken() {
    let pool = loaded_pool(1);
    let (sender, receiver) = unbounded();
    // Called on the decoder's thread.
    let sink = Sink::new(move |event| {
        sender.send((event, common::ThreadClock::current())).unwrap_or_default()
    });
    let mut stream = pool.open(sink).unwrap_or_else(|e| panic!("{e}"));
    for sentence in common::SENTENCES.iter().take(2) {
        stream.start_speech();
        for frame in common::synthesise(sentence, "slt").chunks(320) {
            stream.push_audio(frame);
        }
        // All but the end is decoded when the queue is empty, as in a live call.
        common::wait_for(|| pool.queue_usage().0 == 0);
        let (_, decoder) = receiver.try_iter().last().expect("an interim");
        let before = decoder.cpu_time();
        stream.end_speech();
        while !matches!(
            receiver.recv_timeout(common::HANG_TIMEOUT).expect("an answer").0,
            Event::Final(_)
        ) {}
        let work = decoder.cpu_time() - before;
        println!("final after {work:?} of work");
        assert!(work < Duration::from_millis(300), "{work:?}");
    }
}

#[test]
#[ignore = "long: providers"]
fn long_providers_the_final_comes_soon_after_the_end() {
    let pool = loaded_pool(1);
    let (mut stream, events) = open(&pool);
    let mut waits = Vec::new();
    for sentence in common::SENTENCES.iter().take(3) {
        let pcm = common::synthesise(sentence, "slt");
        stream.start_speech();
        for frame in pcm.chunks(320) {
            stream.push_audio(frame);
        }
        // All but the end is decoded when the queue is empty, as in a live call.
        common::wait_for(|| pool.queue_usage().0 == 0);
        let start = Instant::now();
        stream.end_speech();
        while !matches!(
            events.recv_timeout(common::HANG_TIMEOUT).expect("an answer"),
            Event::Final(_)
        ) {}
        waits.push(start.elapsed());
    }
    let best = waits.into_iter().min().unwrap();
    println!("final after {best:?}");
    assert!(best < Duration::from_millis(300), "{best:?}");
}

#[test]
fn the_check_finds_what_set_up_brought() {
    for found in models::check(&common::models_dir()) {
        assert!(found.ready || found.optional, "{found:?}");
    }
}
