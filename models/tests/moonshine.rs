//! Moonshine through the trait that the engine uses: the reference's text, word error rates, and
//! sound without words.
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;
#[path = "common/ogg.rs"]
mod ogg;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crossbeam_channel::{Receiver, unbounded};
use models::Sink;
use models::stt::{Event, Moonshine, MoonshineConfig, Stt, SttStream, moonshine};

const SECOND: usize = 16_000;
/// What each sentence of the set is.
const SENTENCES: &str = include_str!("wer/audio/sentences.txt");

/// Moonshine with one worker; `None` if it is not installed.
fn loaded() -> Option<Moonshine> {
    let dir = common::models_dir();
    if let Err(why) = moonshine::check_installed(&dir) {
        eprintln!("LEFT OUT, it proves nothing here: {why}");
        return None;
    }
    let stt = Moonshine::start(MoonshineConfig { dir, workers: 1 }).unwrap();
    common::wait_for(|| !stt.is_loading());
    assert_eq!(stt.failure(), None);
    Some(stt)
}

fn open(stt: &Moonshine) -> (Box<dyn SttStream>, Receiver<Event>) {
    let (sender, receiver) = unbounded();
    let stream = stt.open(Sink::new(move |event| sender.send(event).unwrap_or_default()));
    (stream.unwrap_or_else(|e| panic!("{e}")), receiver)
}

/// Final transcript of `pcm`, passed at once, so that it does not depend on the speed of the
/// machine.
fn transcribe(stream: &mut dyn SttStream, events: &Receiver<Event>, pcm: &[i16]) -> String {
    stream.start_speech();
    stream.push_audio(pcm);
    stream.end_speech();
    loop {
        match events.recv_timeout(common::HANG_TIMEOUT).expect("an answer") {
            Event::Interim(_) => {}
            Event::Final(text) => return text,
            other => panic!("{other:?}"),
        }
    }
}

fn audio_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wer/audio")
}

/// Names of all files of the set.
fn all_files() -> Vec<String> {
    let files = std::fs::read_dir(audio_dir()).unwrap();
    let names = files.filter_map(|file| {
        Some(file.unwrap().file_name().to_str()?.strip_suffix(".opus")?.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Speaker and sentence of a file.
fn parse_name(name: &str) -> (&str, &'static str) {
    let (speaker, number) = name.rsplit_once('-').unwrap();
    (speaker, SENTENCES.lines().nth(number.parse().unwrap()).unwrap())
}

/// Wrong words, and all words.
#[derive(Clone, Copy, Default)]
struct Errors {
    wrong: usize,
    words: usize,
}

impl Errors {
    fn percent(self) -> f64 {
        self.wrong as f64 * 100.0 / self.words as f64
    }

    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, errors| Self {
            wrong: sum.wrong + errors.wrong,
            words: sum.words + errors.words,
        })
    }
}

/// Errors of each speaker in `transcripts`. Those in noise are one speaker, `noise`.
fn errors_by_speaker<'a>(
    transcripts: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<&'a str, Errors> {
    let mut errors = BTreeMap::<&str, Errors>::new();
    for (name, text) in transcripts {
        let (speaker, sentence) = parse_name(name);
        let speaker = if speaker.starts_with("noise-") { "noise" } else { speaker };
        let sum = errors.entry(speaker).or_default();
        sum.wrong += common::word_errors(sentence, text);
        sum.words += sentence.split_whitespace().count();
    }
    errors
}

/// The reference's transcript of some files (`moonshine/expected.py`): all speakers, and noise.
fn expected() -> BTreeMap<String, String> {
    serde_json::from_str(include_str!("moonshine/expected.json")).unwrap()
}

#[test]
fn transcripts_equal_the_reference() {
    let Some(stt) = loaded() else { return };
    let (mut stream, events) = open(&stt);
    let expected = expected();
    assert!(expected.len() > 20);
    let mut different = Vec::new();
    for (name, text) in &expected {
        let pcm = ogg::decode(&audio_dir().join(format!("{name}.opus")));
        let found = transcribe(&mut *stream, &events, &pcm);
        // The module replaces this spelling.
        if found != text.replace("to-morrow", "tomorrow") {
            different.push((name, found));
        }
    }
    // The network computes in 8 bits. Processors with other instructions round differently.
    assert!(different.len() <= 2, "{different:#?}");
    let pairs = expected.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let errors = errors_by_speaker(pairs);
    let quiet = Errors::sum(errors.iter().filter(|(name, _)| **name != "noise").map(|e| *e.1));
    assert!(quiet.percent() < 15.0 && errors["noise"].percent() < 25.0);
}

#[test]
#[ignore = "long: providers"]
fn long_providers_word_error_rates_of_all_speakers() {
    let Some(stt) = loaded() else { return };
    let (mut stream, events) = open(&stt);
    let (files, mut transcripts) = (all_files(), Vec::new());
    assert_eq!(files.len(), 13 * 14 + 30);
    for name in &files {
        let pcm = ogg::decode(&audio_dir().join(format!("{name}.opus")));
        transcripts.push((name.as_str(), transcribe(&mut *stream, &events, &pcm)));
    }
    let errors = errors_by_speaker(transcripts.iter().map(|(name, text)| (*name, text.as_str())));
    for (speaker, errors) in &errors {
        println!("{speaker:16} {:5.1} %", errors.percent());
    }
    let quiet = Errors::sum(errors.iter().filter(|(name, _)| **name != "noise").map(|e| *e.1));
    let natural = Errors::sum(["hibari", "piper-joe"].into_iter().map(|name| errors[name]));
    let [whole, natural, noise] = [quiet, natural, errors["noise"]].map(Errors::percent);
    println!("all without noise {whole:.1} %, natural {natural:.1} %, noise {noise:.1} %");
    let stats = stt.stats();
    let (work, audio) = stats.iter().fold((0.0, 0.0), |(work, audio), stats| {
        (work + stats.decode_time.as_secs_f64(), audio + stats.audio.as_secs_f64())
    });
    println!("{:.4} s of a worker per second of audio", work / audio);
    assert!(whole <= 15.0 && natural <= 7.0 && noise <= 25.0);
}

/// A sound that decays with the time constant `samples`.
fn decaying(seed: u64, samples: usize, peak: f64, length: usize) -> Vec<i16> {
    let noise = common::white_noise(seed, length, peak).into_iter().enumerate();
    let decayed = noise.map(|(at, x)| f64::from(x) * (-(at as f64) / samples as f64).exp());
    decayed.map(|x| x as i16).collect()
}

/// Noise that swells and ebbs, without the highest frequencies, as breath.
fn breath(peak: f64, length: usize) -> Vec<i16> {
    let (mut smooth, noise) = (0.0, common::white_noise(5, length, peak));
    let swell = |at: usize| (std::f64::consts::PI * at as f64 / length as f64).sin();
    let mut low = |x: i16| {
        smooth += (f64::from(x) - smooth) * 0.4;
        smooth
    };
    noise.into_iter().enumerate().map(|(at, x)| (low(x) * swell(at)) as i16).collect()
}

#[test]
fn sound_without_words_gives_an_empty_final() {
    let Some(stt) = loaded() else { return };
    let (mut stream, events) = open(&stt);
    let mut sounds = vec![("no sound", vec![]), ("a click", vec![0, 20_000, 0])];
    for length in [SECOND / 3, SECOND, 3 * SECOND] {
        sounds.push(("silence", vec![0; length]));
        for peak in [30.0, 300.0, 3_000.0, 10_000.0] {
            sounds.push(("white noise", common::white_noise(1, length, peak)));
            sounds.push(("breath", breath(peak, length)));
        }
        let tone = (0..length).map(|n| ((n as f64 * 0.17).sin() * 6_000.0) as i16);
        sounds.push(("tone", tone.collect()));
        let hum = (0..length).map(|n| ((n as f64 * 0.019_63).sin() * 3_000.0) as i16);
        sounds.push(("hum", hum.collect()));
        let coughs = (0..length / 7_200 + 1).flat_map(|n| decaying(n as u64, 700, 15_000.0, 7_200));
        sounds.push(("coughs", coughs.collect()));
        let keys = (0..length / 2_700 + 1).flat_map(|n| decaying(n as u64, 40, 12_000.0, 2_700));
        sounds.push(("keys", keys.collect()));
    }
    let mut invented = Vec::new();
    for (name, sound) in sounds {
        // As from the engine: with half a second before it.
        let mut pcm = vec![0; SECOND / 2];
        pcm.extend(&sound);
        pcm.resize(pcm.len() + SECOND / 4, 0);
        let text = transcribe(&mut *stream, &events, &pcm);
        println!("{name} of {} samples: {text:?}", sound.len());
        if !text.is_empty() {
            invented.push((name, sound.len(), text));
        }
    }
    assert!(invented.is_empty(), "{invented:?}");
}

#[test]
fn a_long_speech_keeps_its_words_although_it_is_decoded_in_parts() {
    let Some(stt) = loaded() else { return };
    let (mut stream, events) = open(&stt);
    let (mut pcm, mut spoken) = (Vec::new(), String::new());
    for number in [0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13] {
        let name = format!("hibari-{number:02}");
        // The silence around a sentence, .3 s between two, is shorter than the detector's.
        let sentence = ogg::decode(&audio_dir().join(format!("{name}.opus")));
        pcm.extend_from_slice(&sentence[SECOND / 8..sentence.len() - SECOND / 8]);
        spoken.push_str(parse_name(&name).1);
        spoken.push(' ');
    }
    assert!(pcm.len() > 25 * SECOND);
    stream.start_speech();
    for frame in pcm.chunks(320) {
        stream.push_audio(frame);
    }
    stream.end_speech();
    let text = loop {
        match events.recv_timeout(common::HANG_TIMEOUT).expect("an answer") {
            Event::Interim(_) => {}
            Event::Final(text) => break text,
            other => panic!("{other:?}"),
        }
    };
    let (wrong, words) = (common::word_errors(&spoken, &text), spoken.split_whitespace().count());
    println!("{wrong} of {words} words wrong in {text:?}");
    assert!(wrong * 12 <= words, "{wrong} of {words} words wrong in {text:?}");
    let [.., parts, finals] = stt.stats();
    assert_eq!((parts.purpose, finals.purpose), ("part", "final"));
    assert!(parts.decodes + finals.decodes >= 4, "{parts:?} {finals:?}");
}

#[test]
fn a_model_that_is_missing_or_damaged_is_told_with_the_way_to_get_it() {
    let dir = std::env::temp_dir().join(format!("visavis-moonshine-{}", std::process::id()));
    let put = |path: PathBuf| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "something else").unwrap();
    };
    let error = || moonshine::check_installed(&dir).unwrap_err();
    assert!(error().contains("libonnxruntime.so is missing"), "{}", error());
    put(models::paths::onnx_runtime(&dir));
    assert!(error().contains("encoder_model.ort is missing: run `make setup`"), "{}", error());
    put(models::paths::moonshine(&dir).join("encoder_model.ort"));
    assert!(error().contains("its SHA-256 is"), "{}", error());
    std::fs::remove_dir_all(&dir).unwrap();
}
