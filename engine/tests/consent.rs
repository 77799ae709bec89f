//! The user's choice whether a call is recorded: what the client sends and receives, and what
//! reaches the recorder.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use conversation::event::{EndReason, Event};
use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::settings::AgentTurnConfig;
use crossbeam_channel::Receiver;
use engine::channel;
use engine::recorder::{self, Recorder, RecorderConfig, RecorderMessage, RecordingState};
use engine::transport::TransportEvent;
use engine::transport::loopback::LoopbackClient;
use engine_api::{CallConfig, RecordingChoice};
use recording::{Packet, Track};
use serde_json::{Value, json};
use support::{Harness, ReceivedOutput, call_config, call_config_of};

const SECOND: Duration = Duration::from_secs(1);
const MESSAGE: &str = "This call is recorded.";

fn recorded(is_optional: bool) -> Option<RecordingChoice> {
    Some(RecordingChoice { notice: true, is_optional, warning: None })
}

/// A recorder whose thread is the test.
fn test_recorder() -> (Recorder, Receiver<RecorderMessage>) {
    let (sender, messages) = channel::open(&channel::RECORDER, None);
    (Recorder::with_sender(sender), messages)
}

/// A call in virtual time whose recorder is the test.
struct RecordedCall {
    harness: Harness,
    client: LoopbackClient,
    recorder: Receiver<RecorderMessage>,
    /// All messages that the client has received.
    received: Vec<Value>,
}

impl RecordedCall {
    fn start(recording: Option<RecordingChoice>) -> Self {
        let (recorder_of_calls, recorder) = test_recorder();
        let harness = Harness::with_recorder(recorder_of_calls);
        Self::start_in(harness, CallConfig { recording, ..call_config(1) }, recorder)
    }

    fn start_in(
        mut harness: Harness,
        call: CallConfig,
        recorder: Receiver<RecorderMessage>,
    ) -> Self {
        let client = harness.start_call(call, &[], "");
        harness.run_for(SECOND);
        client.send_event(TransportEvent::ChannelOpen);
        Self { harness, client, recorder, received: Vec::new() }
    }

    /// Sends a message with this data and returns the answer to it.
    fn send(&mut self, kind: &str, id: &str, data: Value) -> Value {
        send(&self.client, kind, id, data);
        self.harness.run_for(SECOND / 10);
        self.receive();
        let answer = self.received.iter().rfind(|message| message["id"] == id);
        answer.cloned().unwrap_or(Value::Null)
    }

    /// Sends the user's choice and returns the type and the data of the answer.
    fn choose(&mut self, id: &str, choice: Value) -> (String, Value) {
        let answer = self.send("client-message", id, json!({"t": "recording", "d": choice}));
        (answer["type"].as_str().unwrap_or_default().to_owned(), answer["data"].clone())
    }

    fn receive(&mut self) {
        let mut output = ReceivedOutput::new(self.harness.start);
        output.collect(&self.client);
        let messages = output.texts.iter().map(|text| serde_json::from_str(text).unwrap());
        self.received.extend(messages);
    }

    /// What the server messages say about the recording.
    fn states(&self) -> Vec<Value> {
        let states = self.received.iter().map(|message| message["data"]["recording"].clone());
        let of_server = self.received.iter().map(|message| message["type"] == "server-message");
        states
            .zip(of_server)
            .filter(|(state, is)| *is && !state.is_null())
            .map(|(s, _)| s)
            .collect()
    }

    /// Names of the messages to the recorder since the last call, each run of packets once.
    fn recorder_messages(&self) -> Vec<&'static str> {
        let name = |message| match message {
            RecorderMessage::Start { .. } => "start",
            RecorderMessage::Packets(..) => "packets",
            RecorderMessage::End(_) => "end",
            RecorderMessage::Discard(_) => "discard",
        };
        let mut names: Vec<_> = self.recorder.try_iter().map(name).collect();
        names.dedup();
        names
    }

    /// `is_discarded` of each [`Event::RecordingEnded`].
    fn ends(&self) -> Vec<bool> {
        let events = self.harness.recorder.events_of(1).into_iter();
        events
            .filter_map(|envelope| match envelope.event {
                Event::RecordingEnded { is_discarded } => Some(is_discarded),
                _ => None,
            })
            .collect()
    }
}

fn send(client: &LoopbackClient, kind: &str, id: &str, data: Value) {
    let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
    client.send_event(TransportEvent::Text(message.to_string()));
}

fn accepted() -> (String, Value) {
    ("server-response".into(), json!({"t": "recording", "d": {}}))
}

fn rejected(reason: &str) -> (String, Value) {
    ("error-response".into(), json!({"error": reason}))
}

#[test]
fn a_user_who_does_not_want_a_recording_has_none() {
    let mut call = RecordedCall::start(recorded(true));
    let ready = call.send("client-ready", "r1", json!({}));
    assert_eq!(ready["data"]["recording"], json!({"notice": true, "optional": true}));
    assert_eq!(call.choose("1", json!({"enabled": true})), accepted());
    assert_eq!((call.recorder_messages(), call.states()), (vec!["start", "packets"], vec![]));

    assert_eq!(call.choose("2", json!({"enabled": false})), accepted());
    let discarded = json!({"enabled": false, "discarded": true});
    assert_eq!(call.states(), std::slice::from_ref(&discarded));
    assert_eq!(*call.recorder_messages().last().unwrap(), "discard");

    // The same wish again changes nothing, and the recording does not come back.
    assert_eq!(call.choose("3", json!({"enabled": false})), accepted());
    let refused = rejected("The recording was discarded and cannot be restored");
    assert_eq!(call.choose("4", json!({"enabled": true})), refused);
    call.harness.command(1, Command::Respond { text: "Hello".into() });
    call.harness.run_for(3 * SECOND);
    let ready = call.send("client-ready", "r2", json!({}));
    assert_eq!(ready["data"]["recording"], Value::Null);
    call.harness.command(1, Command::End);
    call.harness.run_for(5 * SECOND);
    assert_eq!(call.recorder_messages(), Vec::<&str>::new(), "nothing more is recorded");
    assert_eq!((call.states(), call.ends()), (vec![discarded], vec![true]));
    assert!(call.harness.recorder.event_names(1).contains(&"call_ended".to_owned()));
}

#[test]
fn a_recording_that_is_not_optional_or_does_not_exist_cannot_be_turned_off() {
    let mut call = RecordedCall::start(recorded(false));
    let ready = call.send("client-ready", "r", json!({}));
    assert_eq!(ready["data"]["recording"], json!({"notice": true, "optional": false}));
    let refused = rejected("The recording of this call cannot be turned off");
    assert_eq!(call.choose("1", json!({"enabled": false})), refused);
    assert_eq!(call.choose("2", json!({"enabled": true})), accepted());
    call.harness.command(1, Command::End);
    call.harness.run_for(5 * SECOND);
    assert_eq!(call.recorder_messages(), ["start", "packets", "end"]);
    assert_eq!((call.states(), call.ends()), (vec![], vec![]));

    let mut call = RecordedCall::start(None);
    let ready = call.send("client-ready", "r", json!({}));
    assert_eq!(ready["data"]["recording"], Value::Null);
    for enabled in [false, true] {
        let refused = rejected("This call is not recorded");
        assert_eq!(call.choose("1", json!({"enabled": enabled})), refused);
    }
    assert_eq!(call.recorder_messages(), Vec::<&str>::new());
}

#[test]
fn a_malformed_choice_is_answered_with_its_field_and_changes_nothing() {
    let mut call = RecordedCall::start(recorded(true));
    let bad = [Value::Null, json!({}), json!([]), json!(false), json!({"enabled": null})];
    let bad = bad.into_iter().chain([json!({"enabled": "false"}), json!({"enabled": 0})]);
    for (id, choice) in bad.enumerate() {
        let refused = rejected("d.enabled: must be true or false");
        assert_eq!(call.choose(&id.to_string(), choice.clone()), refused, "{choice}");
    }
    assert_eq!((call.recorder_messages(), call.ends()), (vec!["start", "packets"], vec![]));
}

#[test]
fn only_the_connection_that_carries_the_call_chooses() {
    let mut call = RecordedCall::start(recorded(true));
    let config = CallConfig { recording: recorded(true), ..call_config(1) };
    let second = call.harness.reconnect(config);
    call.harness.run_for(SECOND);
    second.send_event(TransportEvent::ChannelOpen);
    send(&call.client, "client-message", "1", json!({"t": "recording", "d": {"enabled": false}}));
    call.harness.run_for(SECOND);
    assert_eq!(call.ends(), Vec::<bool>::new());
    let first = std::mem::replace(&mut call.client, second);
    assert_eq!(call.choose("2", json!({"enabled": false})), accepted());
    assert_eq!((call.ends(), call.states().len()), (vec![true], 1));
    drop(first);
}

#[test]
fn a_recording_that_failed_can_still_be_discarded() {
    let mut call = RecordedCall::start(recorded(true));
    let Ok(RecorderMessage::Start { state, .. }) = call.recorder.try_recv() else {
        panic!("no start");
    };
    state.fail("the disk is almost full".into());
    call.harness.run_for(SECOND);
    call.receive();
    assert_eq!(call.states(), [json!({"enabled": false, "discarded": false})]);
    let ready = call.send("client-ready", "r1", json!({}));
    let remains = json!({"notice": true, "optional": true, "enabled": false});
    assert_eq!(ready["data"]["recording"], remains, "its beginning is stored");
    assert_eq!(call.recorder_messages(), ["packets"], "it is complete at the end of the call");
    assert_eq!(call.choose("1", json!({"enabled": true})), rejected("The recording has failed"));
    assert_eq!(call.choose("2", json!({"enabled": false})), accepted());
    assert_eq!(call.recorder_messages(), ["discard"]);
    assert_eq!(call.ends(), [false, true]);
    let ready = call.send("client-ready", "r2", json!({}));
    assert_eq!(ready["data"]["recording"], Value::Null);
}

#[test]
fn a_recording_that_could_not_begin_is_no_recording_that_stopped() {
    let mut call = RecordedCall::start(recorded(true));
    let Ok(RecorderMessage::Start { state, .. }) = call.recorder.try_recv() else {
        panic!("no start");
    };
    state.refuse("the disk is almost full".into());
    call.harness.run_for(SECOND);
    call.receive();
    assert_eq!(call.states(), [json!({"enabled": false, "discarded": true})]);
    let ready = call.send("client-ready", "r", json!({}));
    assert_eq!(ready["data"]["recording"], Value::Null);
    let refused = rejected("This call is not recorded");
    assert_eq!(call.choose("1", json!({"enabled": false})), refused);
    let warnings = warnings(&call.harness);
    assert_eq!(warnings, ["This call is not recorded: the disk is almost full."]);
    assert_eq!(call.ends(), [true]);
}

fn warnings(harness: &Harness) -> Vec<String> {
    let events = harness.recorder.events_of(1).into_iter();
    let texts = events.filter_map(|envelope| match envelope.event {
        Event::Warning { text } => Some(text),
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_server_without_space_or_folder_says_that_nothing_is_recorded() {
    let no_space = DiskRecorder::with_min_free("visavis-no-space", u64::MAX);
    let no_folder = DiskRecorder::start("visavis-no-folder");
    std::fs::remove_dir_all(&no_folder.folder).unwrap();
    std::fs::write(&no_folder.folder, "a file").unwrap();
    for (disk, reason) in [
        (&no_space, "the disk is almost full"),
        (&no_folder, "there is a file in place of the folder of recordings"),
    ] {
        let agent = AgentTurnConfig { recording_message: Some(MESSAGE), ..Default::default() };
        let config = CallConfig { recording: recorded(true), ..call_config_of(1, agent) };
        let harness = Harness::with_recorder(disk.recorder.clone());
        let mut call = RecordedCall::start_in(harness, config, crossbeam_channel::never());
        let ready = call.send("client-ready", "r", json!({}));
        assert_eq!(ready["data"]["recording"], Value::Null);
        call.harness.run_for(5 * SECOND);
        call.receive();
        assert_eq!(spoken_texts(&call.harness), Vec::<String>::new());
        let [warning] = &warnings(&call.harness)[..] else { panic!("not one warning") };
        let start = format!("This server cannot record calls now: {reason}");
        assert!(warning.starts_with(&start), "{warning}");
        assert_eq!((call.states(), call.ends()), (vec![], vec![]));
        let is_started = |event: &Event| *event == Event::RecordingStarted;
        assert_eq!(call.harness.recorder.time_of(1, is_started), None);
    }
}

/// The recorder's thread hangs in a write, so its channel fills far too slowly to be noticed.
#[test]
fn a_recording_ends_within_seconds_of_a_stalled_disk() {
    let mut call = RecordedCall::start(recorded(true));
    let Ok(RecorderMessage::Start { state, .. }) = call.recorder.try_recv() else {
        panic!("no start");
    };
    // It keeps up for ten seconds.
    for _ in 0..100 {
        call.recorder.try_iter().for_each(drop);
        call.harness.run_for(SECOND / 10);
    }
    assert_eq!(call.ends(), Vec::<bool>::new());
    call.harness.run_for(2 * SECOND);
    assert_eq!(call.ends(), Vec::<bool>::new(), "a short stall is no fault");
    call.harness.run_for(3 * SECOND / 2);
    assert_eq!(call.ends(), [false]);
    assert_eq!(warnings(&call.harness), ["The recording ends here: the disk is too slow."]);
    let stats = &call.harness.call_recorder.as_ref().unwrap().stats;
    assert_eq!(stats.failed.load(Relaxed), 1);
    assert_eq!(state.failure(), Some("the disk is too slow"));
}

#[test]
fn a_recording_that_failed_is_complete_at_the_end_of_its_call() {
    let mut call = RecordedCall::start(recorded(true));
    let Ok(RecorderMessage::Start { state, .. }) = call.recorder.try_recv() else {
        panic!("no start");
    };
    state.fail("the disk is almost full".into());
    drop(state);
    call.harness.run_for(SECOND);
    call.harness.command(1, Command::End);
    call.harness.run_for(5 * SECOND);
    assert_eq!(*call.recorder_messages().last().unwrap(), "end");
    assert_eq!(call.ends(), [false]);
}

fn spoken_texts(harness: &Harness) -> Vec<String> {
    let events = harness.recorder.events_of(1).into_iter();
    events
        .filter_map(|envelope| match envelope.event {
            Event::AgentStoppedSpeaking { text, .. } => Some(text),
            _ => None,
        })
        .collect()
}

#[test]
fn the_spoken_message_is_true() {
    let agent = || AgentTurnConfig { recording_message: Some(MESSAGE), ..Default::default() };
    let config = || CallConfig { recording: recorded(true), ..call_config_of(1, agent()) };
    let (recorder, _messages) = test_recorder();

    let mut harness = Harness::with_recorder(recorder.clone());
    let _client = harness.start_call(config(), &[], "");
    harness.run_for(5 * SECOND);
    assert_eq!(spoken_texts(&harness), [MESSAGE]);

    // The user refuses in the middle of it.
    let mut harness = Harness::with_recorder(recorder);
    let client = harness.start_call(config(), &[], "");
    harness.run_for(SECOND + SECOND / 2);
    send(&client, "client-message", "1", json!({"t": "recording", "d": {"enabled": false}}));
    harness.run_for(5 * SECOND);
    let [heard] = &spoken_texts(&harness)[..] else { panic!("{:?}", spoken_texts(&harness)) };
    assert!(MESSAGE.starts_with(heard.as_str()) && heard != MESSAGE, "{heard}");

    // A server that records nothing says nothing, except to the operator and the client.
    let mut harness = Harness::new();
    let _client = harness.start_call(config(), &[], "");
    harness.run_for(5 * SECOND);
    assert_eq!(spoken_texts(&harness), Vec::<String>::new());
    let is_warning = |event: &Event| matches!(event, Event::Warning { .. });
    assert!(harness.recorder.time_of(1, is_warning).is_some());
    let is_end = |event: &Event| matches!(event, Event::Ended { reason: EndReason::Error });
    assert_eq!(harness.recorder.time_of(1, is_end), None);
}

/// A recorder with a folder of its own. The receiver gets each recording that is complete.
struct DiskRecorder {
    folder: PathBuf,
    recorder: Recorder,
    completed: mpsc::Receiver<ConversationId>,
}

impl DiskRecorder {
    fn start(name: &str) -> Self {
        Self::with_min_free(name, 0)
    }

    fn with_min_free(name: &str, min_free: u64) -> Self {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let (sender, completed) = mpsc::channel();
        let config = RecorderConfig {
            folder: folder.clone(),
            min_free,
            on_complete: Arc::new(move |id| sender.send(id).unwrap_or_default()),
        };
        let recorder = recorder::start(config).unwrap();
        Self { folder, recorder, completed }
    }

    fn send(&self, message: RecorderMessage) {
        assert!(self.recorder.sender.send(message).is_ok());
    }

    /// Starts a recording with some packets.
    fn record(&self, id: u128) -> Arc<RecordingState> {
        let (id, state) = (ConversationId(id), Arc::<RecordingState>::default());
        self.send(RecorderMessage::Start { id, video: None, state: Arc::clone(&state) });
        let packet = |n: u64| Packet {
            at: Duration::from_millis(n * 20),
            track: Track::Agent,
            data: Bytes::from_static(&[0xf8, 0xff, 0xfe]),
        };
        self.send(RecorderMessage::Packets(id, (0..100).map(packet).collect()));
        state
    }

    /// Ends the recording with this id, and waits for it. The messages before are then handled.
    fn end(&self, id: u128) {
        self.send(RecorderMessage::End(ConversationId(id)));
        while self.completed.recv().unwrap() != ConversationId(id) {}
    }

    fn files(&self) -> Vec<String> {
        let entries = Path::read_dir(&self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for DiskRecorder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn file(id: u128, extension: &str) -> String {
    format!("{}.{extension}", ConversationId(id))
}

#[test]
fn the_recorder_deletes_a_discarded_recording() {
    let disk = DiskRecorder::start("visavis-discard");
    let (first, second, third) = (disk.record(1), disk.record(2), disk.record(3));
    disk.end(2);
    assert_eq!(disk.files(), [file(1, "capture"), file(2, "recorded"), file(3, "capture")]);
    first.discard();
    disk.send(RecorderMessage::Discard(ConversationId(1)));
    // Packets that were on their way do not bring it back.
    disk.send(RecorderMessage::Packets(ConversationId(1), Vec::new()));
    disk.send(RecorderMessage::End(ConversationId(1)));
    disk.end(3);
    assert_eq!(disk.files(), [file(2, "recorded"), file(3, "recorded")]);
    drop((second, third));
}

#[test]
fn the_recorder_deletes_a_discarded_recording_whose_messages_are_lost() {
    let disk = DiskRecorder::start("visavis-discard-lost");
    let (first, second) = (disk.record(1), disk.record(2));
    first.discard();
    drop(first);
    // The recorder detects the end of both by itself.
    drop(second);
    while disk.completed.recv().unwrap() != ConversationId(2) {}
    let third = disk.record(3);
    disk.end(3);
    assert_eq!(disk.files(), [file(2, "recorded"), file(3, "recorded")]);
    drop(third);
}
