//! What the tests with real models share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use models::Sink;
use models::tts::{Event, Flite, Request, Tts};

/// Sentences as people say them to an agent.
pub(crate) const SENTENCES: [&str; 8] = [
    "hello how are you today",
    "what is the weather like in the city tomorrow",
    "please tell me a story about a little dog",
    "i would like to order two cups of coffee and some bread",
    "can you help me with my computer",
    "my name is john and i live in new york",
    "what time does the next train leave",
    "thank you very much and have a good day",
];

/// Where set-up put the models: the named directory, else the checkout's.
pub(crate) fn models() -> PathBuf {
    let named = std::env::var_os(models::paths::VARIABLE).map(PathBuf::from);
    let dir = named
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(models::paths::DEFAULT));
    assert!(dir.is_dir(), "the models are missing ({}): run `make setup`", dir.display());
    dir
}

/// Waits until `done` holds, at most a minute.
pub(crate) fn wait(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "it took longer than a minute");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A sentence at 16 kHz.
pub(crate) fn say(text: &str, voice: &str) -> Vec<i16> {
    let flite = Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
    let (news, heard) = unbounded();
    let request = Request { text: text.into(), voice: voice.into(), pronunciation: Vec::new() };
    let sink = Sink::new(move |event| news.send(event).unwrap_or_default());
    let _handle = flite.speak(request, sink).unwrap();
    let mut said = Vec::new();
    for event in heard {
        match event {
            Event::Audio { pcm, sample_rate } => {
                assert_eq!(sample_rate, 16_000);
                said.extend(pcm);
            }
            Event::End => return said,
            Event::Failed(error) => panic!("{error}"),
            Event::Phones(_) | Event::Words(_) => {}
        }
    }
    panic!("the voice fell silent");
}

/// White noise, evenly distributed, of the given loudest sample.
pub(crate) fn noise(seed: u64, samples: usize, peak: f64) -> Vec<i16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    };
    (0..samples).map(|_| (next() * peak) as i16).collect()
}

/// Words to insert, remove or exchange to make `heard` of `said`, without case and punctuation.
pub(crate) fn word_errors(said: &str, heard: &str) -> usize {
    let words = |text: &str| -> Vec<String> {
        let plain: String = text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace()).collect();
        plain.to_lowercase().split_whitespace().map(str::to_owned).collect()
    };
    let (said, heard) = (words(said), words(heard));
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (i, word) in said.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in heard.iter().enumerate() {
            let exchanged = diagonal + usize::from(word != other);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[heard.len()]
}

/// The sound that reference code was asked about: `sound.py`, line by line.
pub(crate) fn sound() -> Vec<i16> {
    const RESONANCES: [[[f64; 2]; 3]; 3] = [
        [[1.8608, -0.9409], [1.7652, -0.9409], [1.1050, -0.9216]],
        [[1.9291, -0.9409], [1.2049, -0.9409], [0.7296, -0.9216]],
        [[1.9266, -0.9409], [1.8279, -0.9409], [1.2249, -0.9216]],
    ];
    let (mut noise, mut phase, mut memory) = (1u64, 0.0f64, [[0.0f64; 2]; 3]);
    let mut out = Vec::new();
    for n in 0..204_800 {
        let (segment, at) = (n / 12_800, n % 12_800);
        noise = (noise * 1_103_515_245 + 12_345) % 2_147_483_648;
        let white = noise as f64 / 1_073_741_824.0 - 1.0;
        let kind = segment % 4;
        let x = if kind == 0 {
            white * 30.0
        } else if kind == 1 || kind == 2 {
            let syllable = (at % 2_133) as f64 / 2_133.0;
            let loud = 4.0 * syllable * (1.0 - syllable);
            phase += (160.0 - 60.0 * at as f64 / 12_800.0) / 16_000.0;
            let mut pulse = 0.0;
            if phase >= 1.0 {
                phase -= 1.0;
                pulse = 1.0;
            }
            let vowel = (at / 2_133 + segment) % 3;
            let mut x = 0.0;
            for (band, [a, b]) in RESONANCES[vowel].into_iter().enumerate() {
                let y = pulse + a * memory[band][0] + b * memory[band][1];
                memory[band] = [y, memory[band][0]];
                x += y * [1.0, 0.5, 0.25][band];
            }
            x * loud * if kind == 1 { 900.0 } else { 250.0 } + white * if kind == 1 { 20.0 } else { 200.0 }
        } else if at < 6_400 {
            white * 3000.0
        } else if at % 32 < 16 {
            8000.0
        } else {
            -8000.0
        };
        out.push(x.clamp(-32_768.0, 32_767.0) as i16);
    }
    out
}
