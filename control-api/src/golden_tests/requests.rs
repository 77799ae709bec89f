//! Requests that are not stored as they are.

use serde_json::{Value, json};

use super::{check, compare, describe};
use crate::config::StockAvatar;
use crate::error::ApiError;
use crate::http::body;
use crate::http::console_session::LogInRequest;
use crate::join::{embed, signaling};
use crate::resources::agents::shorthand;
use crate::resources::conversations::{self, control};
use crate::resources::knowledge::UpdateRequest;
use crate::resources::{api_keys, characters, custom_avatars, meetings, videos};
use crate::scope::Scope;

/// Compares the outcomes of all changes of `body`; `parse` gives what is used of a valid one.
fn check_request(name: &str, body: &Value, parse: impl Fn(Value) -> Result<Value, ApiError>) {
    check(name, body, |body| Ok((parse(body)?, json!({}))));
}

/// Compares the outcomes of these bodies.
fn check_bodies(name: &str, bodies: &[Value], parse: impl Fn(Value) -> Result<Value, ApiError>) {
    let outcomes = bodies.iter().map(|body| match parse(body.clone()) {
        Ok(value) => format!("{body}: {value}\n"),
        error => format!(
            "{body}: {}\n",
            describe(&error.map(|_| Default::default()), &Default::default())
        ),
    });
    compare(name, &outcomes.collect::<String>());
}

fn text(value: &impl std::fmt::Debug) -> Value {
    format!("{value:?}").into()
}

#[test]
fn each_change_of_a_new_conversation_has_the_same_outcome_as_before() {
    let body = json!({
        "agent_id": "a",
        "user_name": "n",
        "user_id": "u",
        "context": "c",
        "meta_data": {"k": [1]},
    });
    check_request("conversation", &body, |body| {
        conversations::parse_new_conversation(body).map(|new| text(&new))
    });
    let body = json!({
        "agentId": "a",
        "userName": "n",
        "userId": "u",
        "context": {"k": 1},
        "meta_data": {},
    });
    check_request("auth-conversation", &body, |body| {
        conversations::parse_auth_conversation(body).map(|new| text(&new))
    });
}

#[test]
fn each_change_of_a_command_has_the_same_outcome_as_before() {
    let body = json!({"text": "Hello", "interrupt": false, "add_to_context": true,
        "expression": "glad"});
    check_request("speak", &body, |body| control::parse_speak(body).map(|command| json!(command)));
    let body = json!({"text": "Hello"});
    check_request("respond", &body, |body| {
        control::parse_respond(body).map(|command| json!(command))
    });
    let body = json!({"text": "Hello", "mode": "overwrite"});
    check_request("context", &body, |body| {
        control::parse_context(body).map(|command| json!(command))
    });
}

#[test]
fn each_change_of_a_feedback_has_the_same_outcome_as_before() {
    let parse = |body| conversations::parse_feedback(body).map(|feedback| json!(feedback));
    check_request("feedback", &json!({"rating": 5.0, "feedback": "Good"}), parse);
    let bodies = [json!(0), json!(6), json!(1.5), json!("5"), json!(0.5)]
        .map(|rating| json!({"rating": rating}));
    check_bodies("feedback-ratings", &bodies, parse);
}

#[test]
fn each_change_of_a_visitors_request_has_the_same_outcome_as_before() {
    let parse = |body| embed::parse_visitor(body).map(|visitor| json!(visitor));
    check_request("embed", &json!({"userName": "n", "userId": "u", "context": {"k": 1}}), parse);
    let sizes = [(200, 2046), (201, 2046), (200, 2047)];
    let bodies = sizes
        .map(|(user, context)| json!({"userId": "x".repeat(user), "context": "y".repeat(context)}));
    check_bodies("embed-sizes", &bodies, parse);
}

#[test]
fn each_change_of_an_offer_has_the_same_outcome_as_before() {
    let body = json!({"sdp": "v=0", "type": "offer", "pc_id": "p", "restart_pc": true});
    check_request("offer", &body, |body| signaling::parse_offer(body).map(|offer| json!(offer)));
    let body = json!({"pc_id": "p", "candidates": [{"candidate": "c"}, {}]});
    check_request("candidates", &body, |body| {
        signaling::validate_candidates(&serde_json::to_vec(&body).unwrap()).map(|()| json!({}))
    });
}

#[test]
fn each_change_of_a_key_has_the_same_outcome_as_before() {
    let body = json!({"name": "k", "expires_at": "2100-01-02T03:04:05Z", "scope": "read"});
    check_request("api-key", &body, |body| {
        api_keys::parse(body).map(|(key, expires_at)| {
            text(&(key.name, expires_at, key.scope.unwrap_or(Scope::Administer)))
        })
    });
    let body = json!({"key": "vsv_secret"});
    check_request("session", &body, |body| {
        body::parse::<LogInRequest>(body).map(|request| json!(request.key))
    });
}

#[test]
fn each_change_of_a_short_form_has_the_same_outcome_as_before() {
    let stock = [StockAvatar { avatar_key_id: "ada".into(), ..StockAvatar::default() }];
    let body = json!({
        "name": "n",
        "system_prompt": "p",
        "avatar_ids": ["ada"],
        "avatar_key_id": "ada",
        "callback_url": "https://shop.example",
        "record": true,
    });
    check_request("short-agent", &body, |body| shorthand::expand_short_form(body, &stock));
    let body = json!({
        "template_id": "t",
        "avatar_ids": ["ada"],
        "avatar_key_id": "bob",
        "email": "e",
        "context_override": "c",
    });
    check_request("agent-by-template", &body, |body| {
        shorthand::parse_from_template(body).map(|request| {
            #[derive(Debug)]
            #[expect(dead_code, reason = "only formatted")]
            struct NewAgentFromTemplate {
                template: String,
                avatars: Vec<String>,
                email: Option<String>,
                context: String,
            }
            text(&NewAgentFromTemplate {
                template: request.template_id,
                avatars: request.avatar_ids.unwrap_or_default(),
                email: request.email,
                context: request.context_override.unwrap_or_default(),
            })
        })
    });
}

#[test]
fn each_change_of_a_meeting_has_the_same_outcome_as_before() {
    let body = json!({
        "agent_id": "a", "meeting_url": "https://meet.google.com/abc-defg-hij", "user_name": "n",
        "user_id": "u", "context": "c", "wake_phrase": "w", "mode": "m",
    });
    check_request("meeting", &body, |body| meetings::parse(body).map(|new| json!(new.agent)));
}

#[test]
fn each_change_of_a_knowledge_base_has_the_same_outcome_as_before() {
    let body = json!({"name": "n", "description": "d"});
    check_request("knowledge-base", &body, |body| {
        body::parse::<UpdateRequest>(body).map(|base| json!([base.name, base.description]))
    });
}

#[test]
fn each_change_of_a_custom_avatar_has_the_same_outcome_as_before() {
    let parse = |body| custom_avatars::parse_new_avatar(body).map(|avatar| avatar.to_json());
    let character = json!({
        "age": 0.5, "seed": 3, "skin": {"colour": "#c0906f"}, "background": ["#ffffff", "#000000"],
        "glasses": "round", "earrings": true, "eyes": {"size": 1},
    });
    let body = json!({
        "avatar_name": "n", "gender": "female", "is_private": true, "character": character,
        "rest": {"smile": 0.1}, "voice": "slt", "input_image": "", "landmarks": [],
    });
    check_request("drawn-avatar", &body, parse);
    let unknown = [json!({
        "avatar_name": "n",
        "gender": "male",
        "character": {"wings": 1, "eyes": {"number": 3}},
        "more": null,
    })];
    check_bodies("drawn-avatar-unknown", &unknown, parse);
    // One pixel.
    let image = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let body = json!({
        "avatar_name": "n",
        "gender": "male",
        "is_private": false,
        "input_image": image,
        "landmarks": {"chin": [1, 2]},
    });
    check_request("photo-avatar", &body, parse);
}

#[test]
fn each_change_of_a_preview_has_the_same_outcome_as_before() {
    let body = json!({
        "character": {"age": 0.5, "hair": {"dark": "#c0906f"}},
        "pose": {"smile": 0.2},
        "size": 128,
    });
    check_request("preview", &body, |body| {
        characters::parse_preview_request(body).map(|line| serde_json::from_slice(&line).unwrap())
    });
}

#[test]
fn each_change_of_a_video_has_the_same_outcome_as_before() {
    let body = json!({
        "avatar_key_id": "nia",
        "text": "Hello. [pause 1] How are you?",
        "tts": {
            "provider": "p",
            "model_id": "m",
            "voice_id": "v",
            "language": "en",
            "custom_pronunciation": [{"word": "SQL", "pronunciation": "sequel"}],
        },
        "size": "720x1280",
        "frame_rate": 30,
        "background": "#C0906F",
        "captions": "burned",
        "format": "mp4",
        "title": "t",
        "callback_url": "https://shop.example/hook",
        "meta_data": {"k": [1]},
    });
    check_request("video", &body, videos::request::parse_json);
}
