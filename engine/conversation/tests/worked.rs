//! The worked timelines of the turn-taking page, within 20 ms.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::simulate::simulate;
use serde_json::{Map, Value, json};

/// The output of a scenario.
struct SimulationOutput(Vec<Value>);

impl SimulationOutput {
    fn run(settings: Value, rest: Value) -> Self {
        let mut scenario =
            Map::from_iter([("settings".to_owned(), settings), ("until".to_owned(), json!(30.0))]);
        scenario.extend(rest.as_object().unwrap().clone());
        let out = simulate(Value::Object(scenario).to_string().as_bytes(), false).unwrap();
        Self(out.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Checks the times of all lines of this kind.
    #[track_caller]
    fn assert_times(&self, what: &str, expected: &[f64]) -> &Self {
        let times: Vec<f64> = self.lines_of(what).map(|line| line["t"].as_f64().unwrap()).collect();
        let near = times.len() == expected.len()
            && times.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 0.02);
        assert!(near, "{what}: {times:?}, expected {expected:?}\n{}", self.text());
        self
    }

    fn lines_of(&self, what: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |line| line["what"] == what)
    }

    /// Checks a field of the n-th line of this kind.
    #[track_caller]
    fn assert_field(&self, what: &str, n: usize, field: &str, value: Value) -> &Self {
        let found = &self.lines_of(what).nth(n).unwrap_or(&Value::Null)[field];
        let near = found.as_f64().zip(value.as_f64()).is_some_and(|(a, b)| (a - b).abs() <= 0.02);
        assert!(
            near || *found == value,
            "{what}[{n}].{field}: {found}, expected {value}\n{}",
            self.text()
        );
        self
    }

    /// Checks time and state of all state changes.
    #[track_caller]
    fn assert_states(&self, expected: &[(f64, &str)]) -> &Self {
        let states: Vec<_> = self
            .lines_of("agent.state")
            .map(|l| (l["t"].as_f64().unwrap(), l["state"].as_str().unwrap()))
            .collect();
        let near = states.len() == expected.len()
            && states.iter().zip(expected).all(|(a, b)| (a.0 - b.0).abs() <= 0.02 && a.1 == b.1);
        assert!(near, "{states:?}, expected {expected:?}\n{}", self.text());
        self
    }

    /// Checks role and text of all items of the history.
    #[track_caller]
    fn assert_history(&self, expected: &[(&str, &str)]) -> &Self {
        let history = self.0.last().unwrap()["history"].as_array().unwrap();
        let items: Vec<_> = history
            .iter()
            .map(|item| (item["role"].as_str().unwrap(), item["text"].as_str().unwrap()))
            .collect();
        assert_eq!(items, expected, "{}", self.text());
        self
    }

    fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }
}

const STORY: &str = "Here is a long story for you ... the end.";

fn story_replies(audio: f64) -> Value {
    json!([{"to": "Tell me a story.", "say": STORY, "audio": audio}])
}

fn story_user(more: Value) -> Value {
    let mut user = vec![json!({"from": 0.5, "to": 2.5, "text": "Tell me a story."})];
    user.extend(more.as_array().unwrap().iter().cloned());
    Value::Array(user)
}

#[test]
fn a_question_is_answered_seven_tenths_after_its_end() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": [{"from": 0.5, "to": 2.5, "text": "Hello, how are you?"}],
            "replies": [{"to": "Hello, how are you?", "say": "I am fine.", "audio": 2.0}],
        }),
    );
    lines
        .assert_times("utterance_committed", &[3.0])
        .assert_times("agent.started_speaking", &[3.2])
        .assert_times("agent.stopped_speaking", &[5.21]);
    lines
        .assert_times("user.started_speaking", &[0.55])
        .assert_times("user.stopped_speaking", &[3.0])
        .assert_times("llm.started", &[2.7]);
    lines.assert_times("tts.started", &[3.0]).assert_states(&[
        (3.0, "thinking"),
        (3.2, "speaking"),
        (5.21, "listening"),
    ]);
    let turns = &lines.0.last().unwrap()["turns"];
    assert_eq!(
        *turns,
        json!([{"endpointing": 0.5, "llm_ttft": 0.1, "tts_ttfb": 0.2, "voice_to_voice": 0.7}])
    );
}

#[test]
fn a_slow_model_delays_the_answer() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": [{"from": 0.5, "to": 2.5, "text": "Hello, how are you?"}],
            "replies": [
                {"to": "hello how are you", "say": "I am fine.", "audio": 1.0, "llm_duration": 2.0},
            ],
        }),
    );
    lines
        .assert_times("agent.started_speaking", &[4.9])
        .assert_times("agent.stopped_speaking", &[5.91]);
}

#[test]
fn a_tool_is_asked_while_its_words_play() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({"user": [{"from": 0.5, "to": 2.5, "text": "What's the weather in Tokyo?"}],
            "tools": {"get_weather": {"takes": 0.5, "returns": "Sunny"}},
            "replies": [
                {
                    "to": "What's the weather in Tokyo?",
                    "say": "Let me check the weather for you.",
                    "audio": 2.0,
                    "calls": [{"tool": "get_weather", "arguments": {"city": "Tokyo"}}],
                },
                {"to": "tool:get_weather", "say": "It is sunny in Tokyo.", "audio": 3.0}]}),
    );
    lines.assert_states(&[
        (3.0, "thinking"),
        (3.2, "speaking"),
        (5.21, "thinking"),
        (5.71, "speaking"),
        (8.72, "listening"),
    ]);
    lines.assert_times("tool_call", &[3.5]).assert_field("tool_call", 0, "result", json!("Sunny"));
}

#[test]
fn stop_holds_and_then_kills_the_story() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": story_user(json!([{"from": 5.0, "to": 6.0, "text": "Stop!"}])),
            "replies": story_replies(10.0),
        }),
    );
    lines.assert_times("playout.held", &[5.55]).assert_field(
        "playout.held",
        0,
        "position",
        json!(2.35),
    );
    lines
        .assert_times("playout.ducked", &[5.06])
        .assert_times("agent.interrupted", &[5.55])
        .assert_times("agent.stopped_speaking", &[6.2]);
    lines
        .assert_field("playout.finished", 0, "heard", json!("Here is"))
        .assert_times("utterance_committed", &[3.0, 6.5]);
    lines.assert_history(&[
        ("user", "Tell me a story."),
        ("assistant", "Here is"),
        ("user", "Stop!"),
    ]);
}

#[test]
fn without_a_false_interruption_timeout_a_hold_is_a_kill() {
    let lines = SimulationOutput::run(
        json!({"false_interruption_timeout": null}),
        json!({
            "user": story_user(json!([{"from": 5.0, "to": 6.0, "text": "Stop!"}])),
            "replies": story_replies(10.0),
        }),
    );
    lines.assert_times("agent.stopped_speaking", &[5.55]).assert_field(
        "playout.finished",
        0,
        "position",
        json!(2.35),
    );
    lines.assert_field("agent.stopped_speaking", 0, "text", json!("Here is"));
}

#[test]
fn a_cough_is_held_and_resumed_at_its_sample() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": story_user(json!([{"from": 5.0, "to": 6.0}])),
            "replies": story_replies(6.0),
        }),
    );
    lines
        .assert_times("playout.held", &[5.55])
        .assert_times("playout.resumed", &[8.5])
        .assert_field("playout.resumed", 0, "position", json!(2.35));
    lines.assert_times("agent.stopped_speaking", &[12.16]).assert_field(
        "agent.stopped_speaking",
        0,
        "text",
        json!(STORY),
    );
    lines.assert_times("agent.interrupted", &[5.55]);
}

#[test]
fn a_short_noise_only_ducks() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": story_user(json!([{"from": 5.0, "to": 5.3}])),
            "replies": story_replies(6.0),
        }),
    );
    lines
        .assert_times("playout.ducked", &[5.06])
        .assert_times("playout.unducked", &[5.8])
        .assert_times("playout.held", &[])
        .assert_times("agent.interrupted", &[]);
    lines.assert_times("agent.stopped_speaking", &[9.21]);
}

#[test]
fn a_short_yes_kills_where_backchannels_are_off() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": story_user(json!([{"from": 5.0, "to": 5.3, "text": "yes"}])),
            "replies": story_replies(10.0),
        }),
    );
    lines
        .assert_times("playout.held", &[5.5])
        .assert_times("agent.stopped_speaking", &[5.5])
        .assert_times("utterance_committed", &[3.0, 5.8]);
}

#[test]
fn the_turn_model_chooses_the_delay() {
    for (p, commit) in [(0.1, 4.5), (0.9, 2.0)] {
        let lines = SimulationOutput::run(
            json!({"max_endpointing_delay": 3.0}),
            json!({"user": [{"from": 0.5, "to": 1.5, "text": "Hello", "end_of_turn": p}]}),
        );
        lines.assert_times("utterance_committed", &[commit]);
    }
}

#[test]
fn an_unfinished_sentence_is_one_turn_with_its_end() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": [
                {"from": 0.5, "to": 1.5, "text": "Well I think", "end_of_turn": 0.1},
                {"from": 3.0, "to": 4.0, "text": "we should go", "end_of_turn": 0.1},
            ],
        }),
    );
    // 7.00 on the page = end of speech 4.0 + maximum delay 3.0.
    lines.assert_field("utterance_committed", 0, "text", json!("Well I think we should go"));
    let lines = SimulationOutput::run(
        json!({"max_endpointing_delay": 3.0}),
        json!({
            "user": [
                {"from": 0.5, "to": 1.5, "text": "Well I think", "end_of_turn": 0.1},
                {"from": 3.0, "to": 4.0, "text": "we should go", "end_of_turn": 0.1},
            ],
        }),
    );
    lines.assert_times("utterance_committed", &[7.0]).assert_field(
        "utterance_committed",
        0,
        "text",
        json!("Well I think we should go"),
    );
}

#[test]
fn a_second_thought_replaces_the_answer_in_preparation() {
    for (preemptive, second) in [(true, 4.0), (false, 4.3)] {
        let lines = SimulationOutput::run(
            json!({"false_interruption_timeout": null, "preemptive_generation": preemptive}),
            json!({
                "user": [
                    {"from": 0.5, "to": 2.0, "text": "Tell me a story"},
                    {"from": 2.6, "to": 3.2, "text": "about a firefighter."},
                ],
                "replies": [
                    {"to": "Tell me a story", "say": "Once.", "audio": 1.0, "tts_ttfb": 1.0},
                    {"to": "about a firefighter.", "say": "A fire.", "audio": 1.0, "tts_ttfb": 0.3},
                ],
            }),
        );
        lines
            .assert_times("utterance_committed", &[2.5, 3.7])
            .assert_times("agent.started_speaking", &[second]);
    }
}

#[test]
fn a_killed_replys_tool_runs_on() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": [
                {"from": 0.5, "to": 1.5, "text": "go"},
                {"from": 3.0, "to": 4.0, "text": "Stop!"},
            ],
            "tools": {"slow": {"takes": 4.0, "returns": "done"}},
            "replies": [{"to": "go", "calls": [{"tool": "slow"}]}],
        }),
    );
    lines
        .assert_times("utterance_committed", &[2.0, 4.5])
        .assert_times("tool_call", &[6.0])
        .assert_times("agent.interrupted", &[3.55]);
    lines.assert_history(&[("user", "go"), ("user", "Stop!"), ("tool", "done")]);
}

#[test]
fn too_few_words_wait_for_more() {
    let lines = SimulationOutput::run(
        json!({"min_interruption_words": 3}),
        json!({
            "user": story_user(json!([
                {"from": 5.0, "to": 6.0, "text": "Stop!", "stt_delay": 0},
                {"from": 6.5, "to": 7.5, "text": "ok, stop!", "stt_delay": 0},
            ])),
            "replies": story_replies(5.0),
        }),
    );
    lines.assert_times("agent.stopped_speaking", &[7.5]).assert_field(
        "playout.finished",
        0,
        "position",
        json!(4.3),
    );
    lines.assert_times("utterance_committed", &[3.0, 8.0]).assert_field(
        "utterance_committed",
        1,
        "text",
        json!("Stop! ok, stop!"),
    );
}

#[test]
fn slow_transcripts_of_one_turn_are_waited_for() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": [
                {"from": 0.5, "to": 1.5, "text": "the first part", "stt_delay": 1.0},
                {"from": 2.2, "to": 3.0, "text": "the second part", "stt_delay": 0.8},
            ],
        }),
    );
    lines.assert_times("utterance_committed", &[3.8]).assert_field(
        "utterance_committed",
        0,
        "text",
        json!("the first part the second part"),
    );
}

#[test]
fn a_noise_delays_the_first_sample() {
    let lines = SimulationOutput::run(
        json!({}),
        json!({
            "user": story_user(json!([{"from": 3.1, "to": 3.5}])),
            "replies": story_replies(10.0),
        }),
    );
    lines.assert_times("agent.started_speaking", &[4.0]).assert_times("agent.interrupted", &[]);
}

#[test]
fn idle_counts_from_the_agents_last_sample() {
    let lines = SimulationOutput::run(
        json!({"idle_timeout": 3.0}),
        json!({
            "user": [{"from": 0.5, "to": 1.5, "text": "Hello"}],
            "replies": [{"to": "Hello", "say": "Hi.", "audio": 1.0}],
            "until": 7.0,
        }),
    );
    lines.assert_times("agent.stopped_speaking", &[3.21]).assert_times("user.idle", &[6.21]);
}
