//! Helpers of the tests of the voice Hibari.
#![allow(dead_code, reason = "each test binary uses its part")]

use crossbeam_channel::{Receiver, unbounded};
use models::tts::{Event, Hibari, Phone, Request, Tts};
use models::{Handle, Sink};

/// The voice with `threads` threads.
pub(crate) fn load(threads: usize) -> Hibari {
    Hibari::load(&super::common::models_dir(), threads).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn request(
    voice: &Hibari,
    text: &str,
    pronunciation: &[(&str, &str)],
) -> (Handle, Receiver<Event>) {
    let (sender, receiver) = unbounded();
    let pronunciation = pronunciation.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let request =
        Request { text: text.into(), voice: "heart".into(), pronunciation, ..Request::default() };
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    (voice.speak(request, sink).unwrap_or_else(|e| panic!("{e}")), receiver)
}

/// All events of a request.
#[derive(Default)]
pub(crate) struct Speech {
    pub(crate) phones: Vec<Phone>,
    pub(crate) words: Vec<(String, f64)>,
    pub(crate) pcm: Vec<i16>,
    /// Numbers of words and phones before the first audio.
    pub(crate) words_before_audio: usize,
    pub(crate) phones_before_audio: usize,
}

impl Speech {
    pub(crate) fn seconds(&self) -> f64 {
        self.pcm.len() as f64 / 24_000.0
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.words.iter().map(|(text, _)| text.as_str()).collect()
    }

    pub(crate) fn phone_names(&self) -> String {
        self.phones.iter().map(|phone| phone.name.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// Speaks a text to its end.
pub(crate) fn speak(voice: &Hibari, text: &str, pronunciation: &[(&str, &str)]) -> Speech {
    let (_handle, events) = request(voice, text, pronunciation);
    let mut speech = Speech::default();
    loop {
        match events.recv_timeout(super::common::HANG_TIMEOUT).expect("the voice continues") {
            Event::Phones(phones) => speech.phones.extend(phones),
            Event::Words(words) => speech.words.extend(words.into_iter().map(|w| (w.text, w.end))),
            Event::Audio { pcm, sample_rate } => {
                assert_eq!(sample_rate, 24_000);
                if speech.pcm.is_empty() {
                    speech.words_before_audio = speech.words.len();
                    speech.phones_before_audio = speech.phones.len();
                }
                speech.pcm.extend(pcm);
            }
            Event::Usage { .. } | Event::Provider(_) | Event::ServedBy(_) | Event::Warning(_) => {}
            Event::End => return speech,
            Event::Failed(error) => panic!("{text:?}: {error}"),
        }
    }
}

/// Samples at 24 kHz, resampled to 16 kHz: three output samples for each two of the input, through a
/// low-pass filter (a sinc with a Hann window).
pub(crate) fn to_16_khz(pcm: &[i16]) -> Vec<i16> {
    const HALF_WIDTH: i64 = 24;
    /// Cutoff in cycles per input sample: 7.6 kHz.
    const CUTOFF: f64 = 7.6 / 24.0;
    let length = pcm.len() * 2 / 3;
    let sample = |at: usize| {
        let center = at as f64 * 1.5;
        let first = center.floor() as i64 - HALF_WIDTH + 1;
        let mut sum = 0.0;
        for n in first..first + 2 * HALF_WIDTH {
            let Some(x) = usize::try_from(n).ok().and_then(|n| pcm.get(n)) else { continue };
            let t = n as f64 - center;
            let phase = 2.0 * CUTOFF * t * std::f64::consts::PI;
            let sinc = if t == 0.0 { 1.0 } else { phase.sin() / phase };
            let window = (std::f64::consts::PI * t / (2.0 * HALF_WIDTH as f64)).cos().powi(2);
            sum += f64::from(*x) * 2.0 * CUTOFF * sinc * window;
        }
        sum.round() as i16
    };
    (0..length).map(sample).collect()
}

/// Root of the mean square of the samples in the louder half of the blocks of 20 ms: the loudness of
/// speech without its pauses.
pub(crate) fn loudness(pcm: &[i16], sample_rate: usize) -> f64 {
    let power = |block: &[i16]| {
        block.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / block.len() as f64
    };
    let mut blocks: Vec<f64> = pcm.chunks(sample_rate / 50).map(power).collect();
    blocks.sort_by(|a, b| b.total_cmp(a));
    let loud = &blocks[..blocks.len().div_ceil(2)];
    (loud.iter().sum::<f64>() / loud.len() as f64).sqrt()
}
