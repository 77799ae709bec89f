//! The turn-taking settings of an agent reach the conversation of its call. Settings with which no
//! call could start are not stored.

use std::time::Duration;

use conversation::settings::{DEFAULT_ERROR_MESSAGE, TURN_SETTING_KEYS};
use conversation::spec::{Greeting, Spec};
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer};

/// The specification with which a call of this agent starts.
async fn spec_of_agent(server: &TestServer, agent: &str) -> Spec {
    let (id, token) = server.create_conversation(agent).await;
    let offer = server.request("POST", &format!("/rtc/{id}")).bearer_auth(token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    server.engine.offers.lock().unwrap().last().unwrap().config.spec.clone()
}

async fn spec_with_fields(server: &TestServer, extra: Value) -> Spec {
    let agent = server.create_agent(extra).await;
    spec_of_agent(server, &agent).await
}

fn avatars_with(extra: Value) -> Value {
    let mut face = json!({"avatar_key_id": "ada"});
    for (key, value) in extra.as_object().unwrap() {
        face[key] = value.clone();
    }
    json!([face])
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test]
async fn calls_of_an_agent_that_records_have_word_times() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    for record in [true, false] {
        let spec = spec_with_fields(&server, json!({"record": record})).await;
        assert_eq!(spec.record_words, record);
    }
}

#[tokio::test]
async fn the_presets_arrive_at_the_call() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    for (handling, min, max, preemptive) in [
        ("proactive", 300, 2000, true),
        ("balanced", 400, 3000, true),
        ("deliberate", 800, 5000, false),
    ] {
        for (ability, duration, words, backchannels) in
            [("high", 250, 0, false), ("medium", 500, 0, true), ("low", 800, 2, true)]
        {
            let face =
                avatars_with(json!({"turn_handling": handling, "interruptability": ability}));
            let spec = spec_with_fields(&server, json!({"avatars": face})).await;
            let end = (
                spec.min_endpointing_delay,
                spec.max_endpointing_delay,
                spec.preemptive_generation,
            );
            assert_eq!(end, (ms(min), ms(max), preemptive), "{handling}");
            let interruption =
                (spec.min_interruption_duration, spec.min_interruption_words, spec.backchannels);
            assert_eq!(interruption, (ms(duration), words, backchannels), "{ability}");
        }
    }
}

#[tokio::test]
async fn each_key_of_the_turn_object_arrives_at_the_call_and_changes_nothing_else() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let plain = spec_with_fields(&server, json!({})).await;
    let seconds = |secs: u64, nanos: u64| json!({"secs": secs, "nanos": nanos});
    let keys = [
        ("min_endpointing_delay", json!(0.7), seconds(0, 700_000_000)),
        ("max_endpointing_delay", json!(4), seconds(4, 0)),
        ("min_interruption_duration", json!(0.3), seconds(0, 300_000_000)),
        ("min_interruption_words", json!(3), json!(3)),
        ("false_interruption_timeout", Value::Null, Value::Null),
        ("allow_interruptions", json!(false), json!(false)),
        ("backchannels", json!(false), json!(false)),
        ("stop_words", json!(false), json!([])),
        ("preemptive_generation", json!(false), json!(false)),
        ("preemptive_tts", json!(true), json!(true)),
        ("echo_warmup", json!(1.5), seconds(1, 500_000_000)),
        ("max_tool_steps", json!(7), json!(7)),
        ("min_consecutive_speech_delay", json!(0.25), seconds(0, 250_000_000)),
        ("transcript_timeout", json!(9), seconds(9, 0)),
        ("turn_threshold", json!(0.75), json!(0.75)),
    ];
    assert_eq!(keys.each_ref().map(|key| key.0), TURN_SETTING_KEYS);
    for (key, value, given) in keys {
        let spec = spec_with_fields(&server, json!({"config": {"turn": {key: value}}})).await;
        let mut expected = json!(plain);
        assert_ne!(expected[key], given, "{key}: the test must use a value other than the default");
        expected[key] = given;
        expected["user_id"] = spec.user_id.clone().into();
        assert_eq!(json!(spec), expected, "{key}");
    }
}

#[tokio::test]
async fn what_the_face_says_arrives_at_the_call() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let plain = spec_with_fields(&server, json!({})).await;
    assert_eq!(
        (plain.greeting, plain.idle_timeout, plain.idle_end_after),
        (None, Some(ms(30_000)), Some(3))
    );
    assert_eq!(
        (plain.max_call_duration, plain.call_warning_before),
        (Some(ms(300_000)), ms(10_000))
    );
    assert_eq!(
        (plain.error_message.as_deref(), plain.turn_model),
        (Some(DEFAULT_ERROR_MESSAGE), false)
    );
    let spec = spec_with_fields(
        &server,
        json!({
            "avatars": avatars_with(json!({
                "stt": {
                    "min_endpointing_delay": 0.6,
                    "max_endpointing_delay": 1.2,
                    "turn_model": true,
                },
                "welcome_message": {"wait_time": 2.5, "messages": ["Hello."]},
                "idle_timeout": {
                    "timeout": 8,
                    "filler_phrases": ["Hm?", "Still there?"],
                    "end_after": null,
                },
                "exit_heads_up_message": {"callout_before": 4, "messages": ["Soon over."]},
                "exit_message": {"messages": ["Goodbye."], "max_call_duration": 20},
            })),
            "config": {
                "error_message": null,
                "turn": {"min_endpointing_delay": 2, "max_endpointing_delay": 2.5},
            },
        }),
    )
    .await;
    assert_eq!(
        (spec.min_endpointing_delay, spec.max_endpointing_delay),
        (ms(600), ms(1200)),
        "stt wins"
    );
    assert!(spec.turn_model);
    assert_eq!(spec.greeting, Some(Greeting { text: "Hello.".into(), delay: ms(2500) }));
    assert_eq!((spec.idle_timeout, spec.idle_end_after), (Some(ms(8000)), None));
    assert_eq!(spec.idle_messages, ["Hm?", "Still there?"]);
    assert_eq!((spec.max_call_duration, spec.call_warning_before), (Some(ms(20_000)), ms(4000)));
    assert_eq!(spec.warning_message.as_deref(), Some("Soon over."));
    assert_eq!(spec.exit_message.as_deref(), Some("Goodbye."));
    assert_eq!(spec.error_message, None);
}

#[tokio::test]
async fn the_message_of_a_recording_is_spoken_only_if_the_call_is_recorded() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let fields = |record: bool| {
        json!({
            "record": record,
            "config": {"recording": {"message": "This call is recorded."}},
            "avatars": avatars_with(json!({"welcome_message": {"wait_time": 2, "messages": []}})),
        })
    };
    let message = Greeting { text: "This call is recorded.".into(), delay: ms(2000) };
    let spec = spec_with_fields(&server, fields(true)).await;
    assert_eq!((spec.greeting, spec.recording_message), (None, Some(message)));
    let spec = spec_with_fields(&server, fields(false)).await;
    assert_eq!(spec.recording_message, None);
}

/// A client reads an agent and writes back what it read, so the delays in the response must be
/// those that apply.
#[tokio::test]
async fn the_delays_that_are_shown_are_those_that_apply() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let body = json!({
        "avatars": avatars_with(json!({"turn_handling": "deliberate"})),
        "config": {"turn": {"min_endpointing_delay": 1.5}},
    });
    let agent = server.create_agent(body).await;
    let path = format!("/v1/ext/agent/{agent}");
    let shown = server.get(&path).await.expect_status(200);
    let stt = &shown["avatars"][0]["config"]["stt"];
    assert_eq!(
        (&stt["min_endpointing_delay"], &stt["max_endpointing_delay"]),
        (&json!(1.5), &json!(5.0))
    );
    let before = spec_of_agent(&server, &agent).await;
    assert_eq!((before.min_endpointing_delay, before.max_endpointing_delay), (ms(1500), ms(5000)));
    server.send_json("PUT", &path, shown).await.expect_status(200);
    let after = spec_of_agent(&server, &agent).await;
    assert_eq!(after.min_endpointing_delay, before.min_endpointing_delay);
    assert_eq!(after.max_endpointing_delay, before.max_endpointing_delay);
}

#[tokio::test]
async fn settings_with_which_no_call_could_begin_are_refused_by_field_and_reason() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let above = "must not be above max_endpointing_delay";
    for (handling, turn, field, reason) in [
        ("proactive", json!({"min_endpointing_delay": 2.5}), "min_endpointing_delay", above),
        (
            "balanced",
            json!({"min_endpointing_delay": 2, "max_endpointing_delay": 1}),
            "min_endpointing_delay",
            above,
        ),
        (
            "balanced",
            json!({"max_endpointing_delay": 0.1}),
            "max_endpointing_delay",
            "must not be below min_endpointing_delay",
        ),
        (
            "balanced",
            json!({"max_endpointing_delay": 11}),
            "max_endpointing_delay",
            "must be between 0 and 10",
        ),
        ("balanced", json!({"echo_warmup": -1}), "echo_warmup", "must not be negative"),
        ("balanced", json!({"echo_warmup": "NaN"}), "echo_warmup", "must be a number"),
        ("balanced", json!({"turn_threshold": 1.5}), "turn_threshold", "must be between 0 and 1"),
        (
            "balanced",
            json!({"max_tool_steps": 0.5}),
            "max_tool_steps",
            "must be a whole number that is not negative",
        ),
    ] {
        let body = json!({
            "agent_name": "Ann",
            "agent_system_prompt": "Be kind.",
            "avatars": avatars_with(json!({"turn_handling": handling})),
            "config": {"turn": turn},
        });
        let refused = server.post("/v1/ext/agent", body).await.expect_status(400);
        let fault = json!([{"field": format!("config.turn.{field}"), "reason": reason}]);
        assert_eq!(
            (&refused["error"], &refused["details"]),
            (&json!("Invalid request body"), &fault)
        );
    }
}
