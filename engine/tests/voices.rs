//! The times of a recorded call: what its messages and words say, and where both voices are in the
//! delivered file. In virtual time, over a connection.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use conversation::settings::AgentTurnConfig;
use conversation::view::ConversationView;
use crossbeam_channel::Receiver;
use engine::channel;
use engine::recorder::{Recorder, RecorderMessage};
use engine_api::{CallConfig, RecordingChoice};
use models::{Handle, Sink, tts};
use opus::{Application, Channels as OpusChannels, Decoder, Encoder};
use recording::capture::{CaptureReader, CaptureWriter};
use recording::delivery::write;
use recording::{Channels, Track};
use serde_json::{Value, json};
use support::virtual_client::{Client, loopback_socket};
use support::{Harness, VirtualTime, call_config_of, user_audio};

const SAMPLE_RATE: usize = 48_000;
/// Seconds of each word of the agent, after a pause.
const WORD: f64 = 0.3;
const PAUSE: f64 = 0.15;
/// Maximum difference between the transcript and the recording, in seconds.
const TOLERANCE: f64 = 0.04;
/// Samples that a decoder drops at the beginning of the delivered file.
const ENCODER_DELAY: usize = 312;
/// The user's speech as it is sent: silence before it and its length, in seconds.
const SPEECH: [(f64, f64); 3] = [(0.8, 1.0), (2.6, 1.1), (6.0, 0.7)];

/// A tone for each word, and the words with their times.
struct TonesTts(VirtualTime);

impl tts::Tts for TonesTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        let word = |(n, text): (u32, &str)| {
            let end = f64::from(n + 1) * (PAUSE + WORD);
            tts::Word { text: text.into(), begin: Some(end - WORD), end }
        };
        let words: Vec<_> = (0..).zip(request.text.split_whitespace()).map(word).collect();
        let parts = vec![(PAUSE, WORD); words.len()];
        self.0.schedule_after(Duration::from_millis(16), move || {
            sink.send(tts::Event::Words(words));
            sink.send(tts::Event::Audio { pcm: user_audio(&parts), sample_rate: 16_000 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::noop())
    }
}

/// The `chat_history` of a call in which the user asks, interrupts the answer and asks again, and
/// the user's and the agent's samples in its delivered file.
fn recorded_call() -> (Vec<Value>, [Vec<i16>; 2]) {
    let (sender, messages) = channel::open(&channel::RECORDER, None);
    let socket = loopback_socket();
    let mut harness = Harness::with_socket_and_recorder(socket, Recorder::with_sender(sender));
    let turn = json!({"echo_warmup": 0});
    let agent =
        AgentTurnConfig { turn: Some(&turn), record_words: true, ..AgentTurnConfig::default() };
    let recording = Some(RecordingChoice { notice: true, ..RecordingChoice::default() });
    let config = CallConfig { recording, ..call_config_of(1, agent) };
    let voice = Arc::new(TonesTts(harness.time.clone()));
    let client = Client::answered_by(&mut harness, |harness, sdp| {
        let script = ["What is new?", "Stop, please.", "Go on."];
        let answer = "One two three four five six seven eight nine ten.";
        harness.offer_scripted_call(config, sdp, &script, answer, voice)
    });
    let mut client = client.connect(&mut harness);
    let mut encoder = Encoder::new(16_000, OpusChannels::Mono, Application::Voip).unwrap();
    let mut capture = Vec::new();
    let mut writer = CaptureWriter::new(&mut capture, None).unwrap();
    let audio = user_audio(&[&SPEECH[..], &[(8.0, 0.0)]].concat());
    for (n, frame) in (0..).zip(audio.chunks_exact(320)) {
        client.send_voice(harness.now, n, encoder.encode_vec(frame, 1_500).unwrap());
        harness.run_for(Duration::from_millis(20));
        client.exchange(harness.now);
        write_packets(&messages, &mut writer);
    }
    writer.flush().unwrap();
    let mut view = ConversationView::default();
    harness.recorder.events_of(1).iter().for_each(|event| view.apply(event));
    let history = view.chat_history(|_| Value::Null);
    (history["messages"].as_array().unwrap().clone(), decode(&deliver(&capture)))
}

fn write_packets(messages: &Receiver<RecorderMessage>, writer: &mut CaptureWriter<&mut Vec<u8>>) {
    for message in messages.try_iter() {
        if let RecorderMessage::Packets(_, packets) = message {
            packets.into_iter().for_each(|packet| writer.push(packet).unwrap());
        }
    }
}

fn deliver(capture: &[u8]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    write(capture, &mut file, Channels::Split, |_| {}).unwrap();
    file.into_inner()
}

/// The samples of both channels.
fn decode(file: &[u8]) -> [Vec<i16>; 2] {
    let mut reader = CaptureReader::new(file).unwrap();
    let mut decoder = Decoder::new(SAMPLE_RATE as u32, OpusChannels::Stereo).unwrap();
    let mut samples = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        if !matches!(packet.track, Track::Video(_)) {
            let mut frame = [0; 2 * 960];
            assert_eq!(decoder.decode(&packet.data, &mut frame, false).unwrap(), 960);
            samples.extend(frame);
        }
    }
    let heard = &samples[2 * ENCODER_DELAY..];
    [0, 1].map(|channel| heard.iter().skip(channel).step_by(2).copied().collect())
}

/// Start and end of each sound, in seconds. Gaps shorter than `bridge` belong to a sound.
fn sounds(samples: &[i16], bridge: f64) -> Vec<(f64, f64)> {
    let mut found: Vec<(f64, f64)> = Vec::new();
    for (n, _) in samples.iter().enumerate().filter(|(_, sample)| sample.abs() > 3_000) {
        let at = n as f64 / SAMPLE_RATE as f64;
        match found.last_mut() {
            Some((_, end)) if at - *end < bridge => *end = at,
            _ => found.push((at, at)),
        }
    }
    found
}

fn assert_near(said: (f64, f64), recorded: (f64, f64), what: &Value) {
    let is_near = |a: f64, b: f64| (a - b).abs() < TOLERANCE;
    assert!(
        is_near(said.0, recorded.0) && is_near(said.1, recorded.1),
        "{what} from {} to {} is recorded from {} to {}",
        said.0,
        said.1,
        recorded.0,
        recorded.1
    );
}

/// Start and end according to the transcript.
fn span(message: &Value) -> (f64, f64) {
    let start = message["seconds_from_start"].as_f64().unwrap();
    (start, start + message["duration"].as_f64().unwrap())
}

#[test]
fn both_voices_are_recorded_where_the_transcript_says() {
    let (messages, [user, agent]) = recorded_call();
    let of = |role: &str| messages.iter().filter(|m| m["role"] == role).collect::<Vec<_>>();
    let spoken = of("user");
    let texts: Vec<_> = spoken.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["What is new?", "Stop, please.", "Go on."]);
    let recorded = sounds(&user, 0.5);
    assert_eq!(recorded.len(), SPEECH.len(), "{recorded:?}");
    for (message, sound) in spoken.into_iter().zip(&recorded) {
        assert_near(span(message), *sound, &message["content"]);
    }

    let spoken = of("assistant");
    let tones = sounds(&agent, 0.1);
    let words: Vec<&Value> =
        spoken.iter().flat_map(|message| message["words"].as_array().unwrap()).collect();
    assert!(spoken[0]["interrupted"].as_bool().unwrap(), "{spoken:?}");
    assert!(words.len() > 10, "{words:?}");
    for word in words {
        let said = (word["start"].as_f64().unwrap(), word["end"].as_f64().unwrap());
        let middle = f64::midpoint(said.0, said.1);
        let tone = tones.iter().find(|(start, end)| (*start..*end).contains(&middle));
        assert_near(said, *tone.unwrap_or_else(|| panic!("{word} is silent: {tones:?}")), word);
    }
    // A message of the agent begins with its first sample, which is silent here.
    for message in spoken {
        let (start, _) = span(message);
        let first = message["words"][0]["start"].as_f64().unwrap();
        assert!((first - start - PAUSE).abs() < TOLERANCE, "{message}");
    }
}
