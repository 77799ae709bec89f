//! What the providers of a call use reaches its events, also after the end of the call.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use conversation::event::Event;
use conversation::input::{Command, Input};
use conversation::output::Output;
use conversation::replay::{Replay, Verdict};
use conversation::view::ConversationView;
use engine::channel;
use engine::trace::TraceMessage;
use models::{Handle, Sink, llm, stt, tts};
use serde_json::{Value, json};
use support::{Harness, VirtualTime, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);

/// A hosted STT: it reports its use at once, and once more when its connection is closed, which
/// takes `closing_time` after the end of the call.
struct HostedStt {
    time: VirtualTime,
    closing_time: Duration,
}

struct HostedStream {
    time: VirtualTime,
    closing_time: Duration,
    sink: Option<Sink<stt::Event>>,
}

fn stt_usage(seconds: u64) -> stt::Event {
    let (connected, audio) = (SECOND * seconds as u32, SECOND / 2);
    stt::Event::Usage(stt::Usage {
        provider: "deepgram",
        connected,
        audio,
        input_tokens: 3,
        output_tokens: 2,
        ..stt::Usage::default()
    })
}

impl stt::Stt for HostedStt {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn stt::SttStream>, models::Error> {
        let (time, closing_time) = (self.time.clone(), self.closing_time);
        Ok(Box::new(HostedStream { time, closing_time, sink: Some(sink) }))
    }
}

impl stt::SttStream for HostedStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {
        let sink = self.sink.clone().unwrap();
        self.time.schedule_after(Duration::from_millis(25), move || {
            sink.send(stt_usage(1));
            sink.send(stt::Event::Provider("deepgram"));
            sink.send(stt::Event::Interim("What is".into()));
            sink.send(stt::Event::Turn(stt::TurnHint::End));
            sink.send(stt::Event::Final("What is new?".into()));
        });
    }
    fn reports_usage(&self) -> bool {
        true
    }
}

impl Drop for HostedStream {
    fn drop(&mut self) {
        let sink = self.sink.take().unwrap();
        self.time.schedule_after(self.closing_time, move || sink.send(stt_usage(4)));
    }
}

/// The first model fails. The second one is slow, so a third one is asked, too; the second one
/// answers.
struct HostedLlm(VirtualTime);

impl llm::Llm for HostedLlm {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        self.0.schedule_after(Duration::from_millis(5), move || {
            sink.send(llm::Event::Provider("anthropic"));
            sink.send(llm::Event::Provider("openai"));
            sink.send(llm::Event::Provider("groq"));
            sink.send(llm::Event::ServedBy("openai"));
            sink.send(llm::Event::Text("Nothing at all.".into()));
            sink.send(llm::Event::End {
                prompt_tokens: 100,
                cached_tokens: 60,
                completion_tokens: 20,
            });
        });
        Handle::noop()
    }
}

/// One second of audio for each text, over a connection of seven seconds. Another voice gets the
/// text, too, and is too late.
struct HostedTts(VirtualTime);

impl tts::Tts for HostedTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        self.0.schedule_after(Duration::from_millis(16), move || {
            sink.send(tts::Event::Provider("cartesia"));
            let characters = request.text.chars().count() as u32;
            sink.send(tts::Event::Usage { provider: "", characters });
            sink.send(tts::Event::Provider("elevenlabs"));
            sink.send(tts::Event::Usage { provider: "elevenlabs", characters });
            sink.send(tts::Event::ServedBy("cartesia"));
            sink.send(tts::Event::Audio { pcm: vec![1_000; 24_000], sample_rate: 24_000 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::noop())
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        report("cartesia", 7 * SECOND);
    }
}

fn config() -> engine_api::CallConfig {
    let mut config = call_config(1);
    config.record_trace = true;
    config
}

/// A call with one turn. Returns its harness after the call has ended.
fn run_call(mut harness: Harness, closing_time: Duration) -> Harness {
    let time = harness.time.clone();
    let stt = HostedStt { time: time.clone(), closing_time };
    let (llm, tts) = (Arc::new(HostedLlm(time.clone())), Arc::new(HostedTts(time)));
    let client = harness.start_call_with_models(config(), &stt, llm, tts);
    client.send_audio(user_audio(&[(0.5, 1.0), (3.0, 0.0)]));
    harness.run_for(5 * SECOND);
    harness.command(1, Command::End);
    harness
}

fn view(harness: &Harness) -> ConversationView {
    let mut view = ConversationView::default();
    harness.recorder.events_of(1).iter().for_each(|envelope| view.apply(envelope));
    view
}

fn providers(harness: &Harness) -> Vec<Value> {
    let json = view(harness).usage_json(0.0);
    let mut list = json["providers"].as_array().unwrap().clone();
    list.sort_by_key(|p| (p["kind"].to_string(), p["provider"].to_string()));
    list
}

#[test]
fn the_use_of_each_provider_is_recorded_until_the_stt_has_closed_its_connection() {
    let mut harness = run_call(Harness::new(), Duration::from_millis(800));
    harness.run_for(Duration::from_millis(500));
    assert_eq!(harness.media_thread.call_count(), 1, "the call waits for the last report");
    let ended_at = harness.recorder.time_of(1, |e| matches!(e, Event::Ended { .. })).unwrap();
    harness.run_for(Duration::from_millis(500));
    assert_eq!(harness.media_thread.call_count(), 0);
    let llm = |provider: &str, tokens: [u32; 3]| {
        json!({
            "kind": "llm", "provider": provider, "connected_seconds": 0.0, "audio_seconds": 0.0,
            "characters": 0, "input_tokens": tokens[0], "cached_tokens": tokens[1],
            "output_tokens": tokens[2], "requests": 1,
        })
    };
    let expected = [
        llm("anthropic", [0, 0, 0]),
        llm("groq", [0, 0, 0]),
        llm("openai", [100, 60, 20]),
        json!({
            "kind": "stt", "provider": "deepgram", "connected_seconds": 5.0,
            "audio_seconds": 1.0, "characters": 0, "input_tokens": 6, "cached_tokens": 0,
            "output_tokens": 4, "requests": 0,
        }),
        json!({
            "kind": "tts", "provider": "cartesia", "connected_seconds": 7.0,
            "audio_seconds": 1.0, "characters": 15, "input_tokens": 0, "cached_tokens": 0,
            "output_tokens": 0, "requests": 1,
        }),
        json!({
            "kind": "tts", "provider": "elevenlabs", "connected_seconds": 0.0,
            "audio_seconds": 0.0, "characters": 15, "input_tokens": 0, "cached_tokens": 0,
            "output_tokens": 0, "requests": 1,
        }),
    ];
    assert_eq!(providers(&harness), expected);
    let view = view(&harness);
    assert_eq!(view.last_event_at.as_seconds(), ended_at, "a report does not prolong the call");
    let served = json!(view.turns[0].providers);
    let expected = json!({"stt": ["deepgram"], "llm": ["openai"], "tts": ["cartesia"]});
    assert_eq!(served, expected);
}

#[test]
fn a_call_does_not_wait_for_ever_for_the_last_report() {
    let mut harness = run_call(Harness::new(), 60 * SECOND);
    harness.run_for(Duration::from_millis(1_400));
    assert_eq!(harness.media_thread.call_count(), 1);
    harness.run_for(Duration::from_millis(200));
    assert_eq!(harness.media_thread.call_count(), 0);
    let stt = providers(&harness).into_iter().find(|p| p["kind"] == "stt").unwrap();
    assert_eq!(stt["connected_seconds"], 1.0, "what was reported before");
}

#[test]
fn a_long_call_reports_its_use_while_it_runs() {
    let mut harness = Harness::new();
    let time = harness.time.clone();
    let stt = HostedStt { time: time.clone(), closing_time: SECOND };
    let (llm, tts) = (Arc::new(HostedLlm(time.clone())), Arc::new(HostedTts(time)));
    let client = harness.start_call_with_models(config(), &stt, llm, tts);
    client.send_audio(user_audio(&[(0.5, 1.0), (11.0, 1.0), (3.0, 0.0)]));
    harness.run_for(16 * SECOND);
    let reported = providers(&harness);
    let stt = reported.iter().find(|p| p["kind"] == "stt").unwrap();
    assert_eq!(stt["connected_seconds"], 2.0, "{reported:?}");
    let names = harness.recorder.event_names(1);
    let count = names.iter().filter(|name| *name == "provider.usage").count();
    assert!((1..=8).contains(&count), "at most one per provider every 10 s: {names:?}");
}

/// Providers, hints and use are inputs of the conversation: the trace contains them.
#[test]
fn a_traced_call_with_providers_replays() {
    let (trace, lines) = channel::open(&channel::TRACE, None);
    let mut harness = run_call(Harness::with_trace(trace), Duration::from_millis(300));
    harness.run_for(SECOND);
    let mut replay = Replay::new(false);
    let config = config();
    let header = conversation::trace::header_line(config.id, 0, &config.spec);
    replay.read_line(header.trim_end().as_bytes()).unwrap();
    let (mut inputs, mut outputs) = (Vec::new(), 0);
    for line in lines.try_iter() {
        let TraceMessage::Step(_, at, step) = line else { continue };
        let text = conversation::trace::step_line(at, &step.0, &step.1);
        replay.read_line(text.trim_end().as_bytes()).unwrap();
        outputs += step.1.len() as u64;
        inputs.push((step.0.clone(), step.1.clone()));
    }
    let (_, verdict) = replay.finish().unwrap();
    assert_eq!(verdict, Verdict::Identical { inputs: inputs.len() as u64, outputs });
    let has = |wanted: &dyn Fn(&Input) -> bool| inputs.iter().any(|(input, _)| wanted(input));
    assert!(has(&|input| matches!(input, Input::TurnHint(_))));
    assert!(has(&|input| matches!(input, Input::SttProvider(name) if name == "deepgram")));
    let end = inputs
        .iter()
        .position(|(_, out)| out.iter().any(|output| matches!(output, Output::End(_))))
        .unwrap();
    let late = &inputs[end + 1..];
    assert!(late.iter().all(|(_, out)| matches!(out[..], [Output::Emit(_)])) && !late.is_empty());
}
