//! The agent's own voice, sent back by a participant: real voices, echoes of several levels and
//! delays, other people alone and at the same time, and whole calls.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the rates

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use conversation::event::Event;
use conversation::participation::{Participation, ParticipationMode};
use conversation::settings::AgentTurnConfig;
use conversation::time::Time;
use engine::hear::own_voice::{OwnVoice, Verdict};
use engine::hear::vad::BatchedVad;
use engine_api::{AudioLine, CallConfig};
use models::tts::{self, Tts};
use models::{Handle, Sink, paths, vad};
use support::{Harness, VirtualTime, call_config_of};

/// Samples of a block of 20 ms at 16 kHz.
const BLOCK: usize = 320;
/// Level in dB and delay in ms of each echo.
const ECHOES: [(f64, usize); 3] = [(0.0, 100), (-10.0, 400), (-20.0, 1_000)];
const REPORT: &str = "The quarterly report is ready. Revenue went up by twelve percent, and the \
    largest growth came from the northern region, where three new customers signed contracts. I \
    can send you the details after the meeting if you like.";
const QUESTION: &str = "Sorry, can I ask something here? I think we should first look at the \
    budget for next year, because the numbers that I have seen do not match what finance told us \
    on Monday. Could somebody check that before we decide?";

fn models_dir() -> PathBuf {
    std::env::var_os(paths::MODELS_DIR_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(paths::DEFAULT_MODELS_DIR),
        PathBuf::from,
    )
}

/// A text in a voice, at 48 kHz.
fn synthesize(tts: &dyn Tts, voice: &str, text: &str) -> Vec<i16> {
    let (sender, events) = crossbeam_channel::unbounded();
    let request =
        tts::Request { text: text.into(), voice: voice.into(), ..tts::Request::default() };
    let _handle = tts.speak(request, Sink::new(move |event| drop(sender.send(event))));
    let (mut pcm, mut rate) = (Vec::new(), 48_000);
    for event in events {
        match event {
            tts::Event::Audio { pcm: more, sample_rate } => {
                rate = sample_rate;
                pcm.extend(more);
            }
            tts::Event::End => break,
            tts::Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    let mut upsampler = tts::Upsampler::new(rate).unwrap();
    let mut out = upsampler.push(&pcm);
    out.extend(upsampler.finish());
    out
}

/// A voice as the agent, with its text, and another person's text in another voice.
type Voices = (&'static str, Vec<i16>, Vec<f64>);

/// Three voices.
fn voices() -> &'static [Voices] {
    static VOICES: LazyLock<Vec<Voices>> = LazyLock::new(|| {
        let hibari = tts::Hibari::load(&models_dir(), 1).unwrap_or_else(|e| panic!("{e}"));
        let flite = tts::Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
        let say = |voice, text| match voice {
            "heart" => synthesize(&hibari, voice, text),
            voice => synthesize(&flite, voice, text),
        };
        [("heart", "rms"), ("rms", "heart"), ("slt", "rms")]
            .map(|(agent, other)| (agent, say(agent, REPORT), to_16_khz(&say(other, QUESTION))))
            .into()
    });
    &VOICES
}

fn to_16_khz(pcm: &[i16]) -> Vec<f64> {
    let mean = |part: &[i16]| part.iter().map(|s| f64::from(*s)).sum::<f64>() / 3.0;
    pcm.chunks_exact(3).map(mean).collect()
}

fn rms(samples: &[f64]) -> f64 {
    (samples.iter().map(|s| s * s).sum::<f64>() / samples.len().max(1) as f64).sqrt()
}

/// The voice as it comes back: quieter, later, and without much of its treble (3 dB at 1.7 kHz).
fn echo_of(voice: &[f64], decibels: f64, delay: usize) -> Vec<f64> {
    let gain = 10_f64.powf(decibels / 20.0);
    let mut low = 0.0;
    let filtered = voice.iter().map(|sample| {
        low += 0.5 * (sample * gain - low);
        low
    });
    vec![0.0; delay * 16].into_iter().chain(filtered).collect()
}

fn mix(a: &[f64], b: &[f64]) -> Vec<f64> {
    let at = |x: &[f64], n: usize| x.get(n).copied().unwrap_or(0.0);
    (0..a.len().max(b.len())).map(|n| at(a, n) + at(b, n)).collect()
}

/// Adds noise of some -75 dBFS.
fn to_pcm(samples: &[f64]) -> Vec<i16> {
    let mut seed = 1_u32;
    let noisy = samples.iter().map(|sample| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = f64::from(seed >> 16) / 32_768.0 - 1.0;
        (sample + noise * 10.0).clamp(-32_768.0, 32_767.0) as i16
    });
    noisy.collect()
}

/// Which blocks of `heard` are the agent's own voice, while it says `sent` (48 kHz).
fn run(own_voice: &mut OwnVoice, sent: &[i16], heard: &[f64]) -> Vec<bool> {
    let mut sent = sent.chunks_exact(3 * BLOCK);
    let mut verdicts = Vec::new();
    for (n, block) in (0_u64..).zip(to_pcm(heard).chunks_exact(BLOCK)) {
        let at = |n: u64| Time::from_micros(n * 20_000);
        let frame = sent.next();
        own_voice.push_sent(frame.unwrap_or(&[0; 3 * BLOCK]), at(n), frame.is_some());
        let verdict = own_voice.push_heard(block, at(n + 1));
        verdicts.push(matches!(verdict, Verdict::Own | Verdict::OwnFromNow));
    }
    verdicts
}

/// The first block with sound.
fn onset(voice: &[f64]) -> usize {
    let loud = 0.2 * rms(voice);
    voice.iter().position(|sample| sample.abs() > loud).unwrap() / BLOCK
}

/// Of the blocks with sound in `voice`, after `from` blocks, the share with a verdict.
fn share(verdicts: &[bool], voice: &[f64], from: usize) -> f64 {
    let loud = 0.2 * rms(voice);
    let blocks = verdicts.iter().zip(voice.chunks_exact(BLOCK)).skip(from);
    let of_sound: Vec<bool> = blocks.filter(|(_, b)| rms(b) > loud).map(|(v, _)| *v).collect();
    of_sound.iter().filter(|own| **own).count() as f64 / of_sound.len().max(1) as f64
}

#[test]
fn an_echo_is_recognized_soon_and_from_then_on_at_once() {
    for (name, voice, _) in voices() {
        for (decibels, delay) in ECHOES {
            let echo = echo_of(&to_16_khz(voice), decibels, delay);
            let mut own_voice = OwnVoice::default();
            let verdicts = run(&mut own_voice, voice, &echo);
            let onset = onset(&echo);
            let found = verdicts.iter().position(|own| *own).unwrap_or(verdicts.len());
            let recognized = share(&verdicts, &echo, found);
            eprintln!(
                "{name}, {decibels} dB, {delay} ms: after {} ms, then {:.1} % of its sound, {:?}",
                (found - onset) * 20,
                100.0 * recognized,
                own_voice.delay()
            );
            assert!(found - onset <= 30, "{name}, {decibels} dB, {delay} ms");
            assert!(recognized > 0.97, "{name}, {decibels} dB, {delay} ms: {recognized}");
            let off = own_voice.delay().unwrap().as_millis().abs_diff(delay as u128);
            assert!(off <= 20, "{off} ms");
        }
    }
}

#[test]
fn another_person_is_heard_while_the_agent_speaks() {
    for (name, voice, other) in voices() {
        let mut own_voice = OwnVoice::default();
        let verdicts = run(&mut own_voice, voice, other);
        let muted = share(&verdicts, other, 0);
        eprintln!("{name}, no echo: {:.1} % of another person's sound is muted", 100.0 * muted);
        assert!(muted < 0.03, "{name}: {muted}");
        for (decibels, delay) in ECHOES {
            // The echo alone for 4 s, then with another person at the same level.
            let echo = echo_of(&to_16_khz(voice), decibels, delay);
            let gain = rms(&echo) / rms(other);
            let mut late: Vec<f64> = vec![0.0; 4 * 16_000];
            late.extend(other.iter().map(|sample| sample * gain));
            let heard = mix(&echo, &late);
            let mut own_voice = OwnVoice::default();
            let verdicts = run(&mut own_voice, voice, &heard);
            let until = echo.len().min(late.len());
            let muted = share(&verdicts[..until / BLOCK], &late[..until], 200);
            let onset = onset(&late);
            let first = verdicts[onset..].iter().position(|own| !own).unwrap();
            eprintln!(
                "{name}, {decibels} dB, {delay} ms: heard {} ms after the onset; {:.1} % muted",
                first * 20,
                100.0 * muted
            );
            assert!(muted < 0.3, "{name}, {decibels} dB, {delay} ms: {muted}");
            assert!(first <= 20, "{name}, {decibels} dB, {delay} ms: {first} blocks");
        }
    }
}

#[test]
fn it_allocates_nothing_and_costs_little() {
    let voice = synthesize(&tts::Flite::start(1).unwrap(), "rms", REPORT);
    let other = to_16_khz(&synthesize(&tts::Flite::start(1).unwrap(), "slt", QUESTION));
    let heard = to_pcm(&other);
    let mut own_voice = OwnVoice::default();
    let before = allocations::allocation_count();
    let start = cpu_time::ThreadTime::now();
    let blocks = voice.chunks_exact(3 * BLOCK).zip(heard.chunks_exact(BLOCK));
    let mut count = 0;
    for (n, (sent, heard)) in (0_u64..).zip(blocks) {
        own_voice.push_sent(sent, Time::from_micros(n * 20_000), true);
        own_voice.push_heard(heard, Time::from_micros((n + 1) * 20_000));
        count = n + 1;
    }
    let cost = start.elapsed().as_secs_f64() / (count as f64 * 0.02);
    assert_eq!(allocations::allocation_count(), before);
    eprintln!("{:.2} ms of CPU time per second in which both speak", 1_000.0 * cost);
    assert!(cost < 0.02, "{cost}");
}

/// A voice of flite, 16 ms after the request.
struct InstantTts(VirtualTime, tts::Flite);

impl Tts for InstantTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        let pcm = synthesize(&self.1, "rms", &request.text);
        self.0.schedule_after(Duration::from_millis(16), move || {
            sink.send(tts::Event::Audio { pcm, sample_rate: 48_000 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::noop())
    }
}

fn meeting(mode: ParticipationMode) -> CallConfig {
    let participation = Participation { mode, ..Participation::default() };
    let turn = serde_json::json!({"echo_warmup": 0});
    let agent = AgentTurnConfig {
        turn: Some(&turn),
        participation: Some(participation),
        ..AgentTurnConfig::default()
    };
    call_config_of(1, agent)
}

/// A call with the real VAD, in which the agent is asked to speak, and hears itself. Another person
/// speaks at `other_at`. Returns the committed utterances and how often the agent stopped.
fn call_with_echo(
    mode: ParticipationMode,
    (decibels, delay): (f64, usize),
    other: Option<(usize, &[f64])>,
) -> (Vec<String>, Vec<String>, f64) {
    let dir = models_dir();
    let network = vad::Network::load(&paths::vad(&dir)).unwrap_or_else(|e| panic!("{e}"));
    let mut harness = Harness::with_vad(Box::new(BatchedVad::new(Arc::new(network))));
    let tts = Arc::new(InstantTts(harness.time.clone(), tts::Flite::start(1).unwrap()));
    let call = meeting(mode);
    let mut line = harness.start_line_with_tts(call, &["Wait a moment."; 9], REPORT, tts);
    harness.command(
        1,
        conversation::input::Command::Say {
            text: REPORT.into(),
            interrupt: false,
            allow_interruptions: true,
            add_to_context: true,
            expression: None,
        },
    );
    let mut on_the_way: VecDeque<f64> = vec![0.0; delay * 16].into();
    let (gain, mut low) = (10_f64.powf(decibels / 20.0), 0.0);
    let (mut spoken, mut heard) = (Vec::new(), Vec::new());
    for n in 0..1_000 {
        let begin = n * BLOCK;
        let from_other = |at: usize| match other {
            Some((start, voice)) if begin + at >= start => voice.get(begin + at - start).copied(),
            _ => None,
        };
        heard.clear();
        heard.extend(
            (0..BLOCK)
                .map(|at| on_the_way.pop_front().unwrap_or(0.0) + from_other(at).unwrap_or(0.0)),
        );
        spoken.clear();
        assert!(line.exchange(&to_pcm(&heard), &mut spoken));
        let mut back: Vec<f64> = spoken
            .iter()
            .map(|sample| {
                low += 0.5 * (f64::from(*sample) * gain - low);
                low
            })
            .collect();
        back.resize(back.len().max(BLOCK), 0.0);
        on_the_way.extend(back);
        on_the_way.truncate(delay * 16 + 2 * BLOCK);
        harness.run_for(Duration::from_millis(20));
    }
    let events = harness.recorder.events_of(1);
    let texts = |of: fn(&Event) -> Option<&String>| {
        events.iter().filter_map(|e| of(&e.event).cloned()).collect::<Vec<_>>()
    };
    let committed = texts(|event| match event {
        Event::UtteranceCommitted { text, .. } => Some(text),
        _ => None,
    });
    let said = texts(|event| match event {
        Event::AgentStoppedSpeaking { text, .. } => Some(text),
        _ => None,
    });
    let at = |wanted: fn(&Event) -> bool| harness.recorder.time_of(1, wanted).unwrap_or(0.0);
    let length = at(|e| matches!(e, Event::AgentStoppedSpeaking { .. }))
        - at(|e| matches!(e, Event::AgentStartedSpeaking { .. }));
    (committed, said, length)
}

#[test]
fn in_a_call_the_own_voice_is_neither_transcribed_nor_answered_and_stops_nothing() {
    for mode in [ParticipationMode::OneToOne, ParticipationMode::Participant] {
        for echo in ECHOES {
            let (committed, said, length) = call_with_echo(mode, echo, None);
            eprintln!("{mode:?}, {echo:?}: {committed:?}, spoke for {length:.2} s");
            assert_eq!(committed, [""; 0], "{mode:?}, {echo:?}");
            assert_eq!(said, [REPORT], "{mode:?}, {echo:?}");
        }
    }
}

#[test]
fn in_a_call_with_echo_another_person_interrupts_and_is_transcribed() {
    let voice = to_16_khz(&synthesize(&tts::Flite::start(1).unwrap(), "slt", QUESTION));
    for echo in ECHOES {
        let other = Some((6 * 16_000, &voice[..5 * 16_000]));
        let (committed, said, length) = call_with_echo(ParticipationMode::Participant, echo, other);
        eprintln!("{echo:?}: {committed:?}, spoke for {length:.2} s");
        assert_eq!(committed.first().map(String::as_str), Some("Wait a moment."), "{echo:?}");
        // It pauses at once, and stops when the words are there.
        assert!(said[0].len() < REPORT.len() / 2, "{echo:?}: {said:?}");
    }
}
