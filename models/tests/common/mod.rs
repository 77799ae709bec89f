//! Helpers of the tests with real models.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod noise;
pub(crate) mod sound;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use models::Sink;
use models::stt::{self, Stt};
use models::tts::{Event, Flite, Request, Tts};

/// Sentences as users say them to an agent.
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

/// The models' directory: that of the environment variable, else that of the checkout.
pub(crate) fn models_dir() -> PathBuf {
    let named = std::env::var_os(models::paths::MODELS_DIR_VARIABLE).map(PathBuf::from);
    let dir = named.unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(models::paths::DEFAULT_MODELS_DIR)
    });
    assert!(dir.is_dir(), "the models are missing ({}): run `make setup`", dir.display());
    dir
}

/// A model that has not answered by then hangs. It is long, because other programs may take most of
/// the CPU time.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(600);

/// Waits until `done` holds.
pub(crate) fn wait_for(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG_TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "the state was not reached");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A thread of this process whose CPU time other threads may read.
#[derive(Clone, Debug)]
pub(crate) struct ThreadClock(PathBuf);

impl ThreadClock {
    /// The current thread.
    pub(crate) fn current() -> Self {
        Self(std::fs::canonicalize("/proc/thread-self").unwrap())
    }

    /// CPU time so far, independent of other load (proc_pid_schedstat(5)). For a running thread,
    /// the value is up to 10 ms old.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(self.0.join("schedstat")).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    }
}

/// A sentence at 16 kHz.
pub(crate) fn synthesise(text: &str, voice: &str) -> Vec<i16> {
    // Before the voice's thread starts: it warms up with a word, which consumes noise too.
    let _guard = noise::seed_voice_noise();
    let flite = Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
    let (sender, receiver) = unbounded();
    let request = Request { text: text.into(), voice: voice.into(), ..Request::default() };
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let _handle = flite.speak(request, sink).unwrap();
    let mut samples = Vec::new();
    for event in receiver {
        match event {
            Event::Audio { pcm, sample_rate } => {
                assert_eq!(sample_rate, 16_000);
                samples.extend(pcm);
            }
            Event::End => return samples,
            Event::Failed(error) => panic!("{error}"),
            Event::Phones(_)
            | Event::Words(_)
            | Event::Usage { .. }
            | Event::Provider(_)
            | Event::ServedBy(_)
            | Event::Warning(_) => {}
        }
    }
    panic!("the voice fell silent");
}

/// White noise, uniformly distributed, with the given peak.
pub(crate) fn white_noise(seed: u64, samples: usize, peak: f64) -> Vec<i16> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    };
    (0..samples).map(|_| (next() * peak) as i16).collect()
}

/// Number of words to insert, remove or replace to turn `spoken` into `recognized`, without case
/// and punctuation.
pub(crate) fn word_errors(spoken: &str, recognized: &str) -> usize {
    let words = |text: &str| -> Vec<String> {
        let plain: String =
            text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace()).collect();
        plain.to_lowercase().split_whitespace().map(str::to_owned).collect()
    };
    let (spoken, recognized) = (words(spoken), words(recognized));
    let mut row: Vec<usize> = (0..=recognized.len()).collect();
    for (i, word) in spoken.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in recognized.iter().enumerate() {
            let exchanged = diagonal + usize::from(word != other);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[recognized.len()]
}

/// Resident memory of this process in MB (millions of bytes).
pub(crate) fn resident_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

/// Recognizes the same speech in several streams at a time. Each final must have words.
pub(crate) fn transcribe_in_streams(recognizer: &dyn Stt, count: usize, speech: &[i16]) {
    let (sender, receiver) = unbounded();
    let mut streams: Vec<_> = (0..count)
        .map(|_| {
            let sender = sender.clone();
            recognizer
                .open(Sink::new(move |event| sender.send(event).unwrap_or_default()))
                .unwrap_or_else(|e| panic!("{e}"))
        })
        .collect();
    for stream in &mut streams {
        stream.start_speech();
        stream.push_audio(speech);
        stream.end_speech();
    }
    let mut finals = 0;
    while finals < count {
        if let stt::Event::Final(text) = receiver.recv_timeout(HANG_TIMEOUT).expect("an answer") {
            assert!(!text.is_empty());
            finals += 1;
        }
    }
}
