//! The male voices: loudness, the bands that are added, and a recognizer that hears them.
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;
#[path = "common/hibari.rs"]
mod hibari;
#[path = "common/replies.rs"]
mod replies;

use std::path::{Path, PathBuf};

use crossbeam_channel::unbounded;
use models::Sink;
use models::stt::{Moonshine, MoonshineConfig, Stt, moonshine};
use models::tts::{Event, Flite, Phone, Request, Tts, Upsampler};
use replies::{REPLIES, transcribe};

/// The voices; how many of the 148 words of the replies a recognizer may get wrong; and the loudness
/// of flite's own sound, without the equalizer of this server.
const VOICES: [(&str, usize, f64); 2] = [("rms", 11, 4_009.0), ("awb", 16, 4_589.0)];

#[test]
fn the_voices_are_as_loud_as_without_the_equalizer() {
    for (voice, _, before) in VOICES {
        let pcm: Vec<i16> =
            REPLIES.iter().flat_map(|text| common::synthesise(text, voice)).collect();
        let decibels = 20.0 * (hibari::loudness(&pcm, 16_000) / before).log10();
        println!("{voice}: {decibels:.2} dB louder");
        assert!(decibels.abs() < 1.0, "{voice}: {decibels:.2} dB louder");
        let peak = pcm.iter().map(|x| i32::from(*x).abs()).max().unwrap();
        assert!(peak <= 32_500, "{voice}: {peak}");
    }
}

/// Power in the band above `hz`, through a windowed sinc, in each phone of a kind.
fn power_above(hz: f64, sound: &[i16], phones: &[Phone], is_kind: impl Fn(&str) -> bool) -> f64 {
    const HALF_WIDTH: i32 = 64;
    let taps: Vec<f64> = (-HALF_WIDTH..=HALF_WIDTH)
        .map(|n| {
            let t = f64::from(n) * std::f64::consts::PI;
            let cutoff = hz / 24_000.0;
            let low = if n == 0 { cutoff } else { (t * cutoff).sin() / t };
            let window = (t / f64::from(2 * HALF_WIDTH)).cos().powi(2);
            if n == 0 { 1.0 - low } else { -low * window }
        })
        .collect();
    let (mut begin, mut sum, mut count) = (0, 0.0, 0);
    for phone in phones {
        let end = (f64::from(phone.end) * 48_000.0) as usize;
        if is_kind(&phone.name) {
            for window in sound[begin..end.min(sound.len())].windows(taps.len()).step_by(5) {
                let y: f64 = window.iter().zip(&taps).map(|(x, tap)| f64::from(*x) * tap).sum();
                sum += y * y;
                count += 1;
            }
        }
        begin = end.min(sound.len());
    }
    sum / f64::from(count.max(1))
}

#[test]
fn the_sound_above_8_khz_lies_in_fricatives_and_hardly_in_vowels() {
    let flite = Flite::start(1).unwrap();
    for (voice, ..) in VOICES {
        let (mut fricatives, mut vowels, mut pauses) = (0.0, 0.0, 0.0);
        for text in &REPLIES[..6] {
            let (phones, pcm) = speak(&flite, text, voice);
            let sound = upsample(16_000, &pcm);
            let power =
                |is_kind: &dyn Fn(&str) -> bool| power_above(8_300.0, &sound, &phones, is_kind);
            fricatives += power(&|name| ["s", "sh", "z", "zh", "ch", "jh"].contains(&name)) / 6.0;
            vowels += power(&|name| "aeiou".contains(&name[..1])) / 6.0;
            pauses += power(&|name| name == "pau") / 6.0;
        }
        let decibels = |power: f64| 10.0 * (power / fricatives).log10();
        println!(
            "{voice}, above 8.3 kHz: vowels {:.1} dB and pauses {:.1} dB below fricatives ({:.0})",
            -decibels(vowels),
            -decibels(pauses),
            fricatives.sqrt()
        );
        assert!(fricatives.sqrt() > 30.0, "{voice}: audible");
        assert!(decibels(vowels) < -15.0 && decibels(pauses) < -15.0, "{voice}");
    }
}

fn speak(flite: &Flite, text: &str, voice: &str) -> (Vec<Phone>, Vec<i16>) {
    let (sender, events) = unbounded();
    let request = Request { text: text.into(), voice: voice.into(), ..Request::default() };
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let _handle = flite.speak(request, sink).unwrap();
    let (mut phones, mut samples) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Phones(more) => phones.extend(more),
            Event::Audio { pcm, .. } => samples.extend(pcm),
            Event::Words(_)
            | Event::Usage { .. }
            | Event::Provider(_)
            | Event::ServedBy(_)
            | Event::Warning(_) => {}
            Event::End => break,
            Event::Failed(error) => panic!("{error}"),
        }
    }
    (phones, samples)
}

#[test]
fn a_recognizer_understands_the_male_voices() {
    let dir = common::models_dir();
    if let Err(why) = moonshine::check_installed(&dir) {
        return eprintln!("LEFT OUT, it proves nothing here: {why}");
    }
    let recognizer = Moonshine::start(MoonshineConfig { dir, workers: 1 }).unwrap();
    common::wait_for(|| !recognizer.is_loading());
    let (sender, events) = unbounded();
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let mut stream = recognizer.open(sink).unwrap_or_else(|e| panic!("{e}"));
    for (voice, limit, _) in VOICES {
        let (mut wrong, mut words) = (0, 0);
        for reply in REPLIES {
            let mut pcm = vec![0; 4_000];
            pcm.extend(common::synthesise(reply, voice));
            pcm.resize(pcm.len() + 4_000, 0);
            let text = transcribe(&mut *stream, &events, &pcm);
            let errors = common::word_errors(reply, &text);
            if errors > 0 {
                println!("{voice}: {errors} wrong: {text:?} for {reply:?}");
            }
            wrong += errors;
            words += reply.split_whitespace().count();
        }
        println!("{voice}: {wrong} of {words} words wrong");
        assert!(wrong <= limit, "{voice}: {wrong} of {words} words wrong");
    }
}

/// Writes `VOICE-NUMBER.wav` at 48 kHz, as a caller hears the voices, for
/// `scripts/voices/measure.py`. The directory is that of `VISAVIS_SOUND_DIR`.
#[test]
#[ignore = "long: writes files"]
fn long_write_the_sound_of_the_voices() {
    let dir = PathBuf::from(std::env::var_os("VISAVIS_SOUND_DIR").expect("VISAVIS_SOUND_DIR"));
    std::fs::create_dir_all(&dir).unwrap();
    let neural = hibari::load(1);
    for (n, reply) in REPLIES.iter().enumerate() {
        for (voice, ..) in VOICES {
            let pcm = common::synthesise(reply, voice);
            write_wav(&dir.join(format!("{voice}-{n:02}.wav")), &upsample(16_000, &pcm));
        }
        let pcm = hibari::speak(&neural, reply, &[]).pcm;
        write_wav(&dir.join(format!("hibari-{n:02}.wav")), &upsample(24_000, &pcm));
    }
}

fn upsample(rate: u32, pcm: &[i16]) -> Vec<i16> {
    let mut upsampler = Upsampler::new(rate).unwrap();
    let mut sound = upsampler.push(pcm);
    sound.extend(upsampler.finish());
    sound
}

/// Mono, 48 kHz, 16 bits.
fn write_wav(path: &Path, pcm: &[i16]) {
    let bytes = pcm.len() as u32 * 2;
    let mut file = Vec::with_capacity(44 + bytes as usize);
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(48_000u32.to_le_bytes());
    file.extend(96_000u32.to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(pcm.iter().flat_map(|x| x.to_le_bytes()));
    std::fs::write(path, file).unwrap();
}
