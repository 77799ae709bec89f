//! How the servers of the vendors write their messages.

use serde_json::{Value, json};

use super::{SocketWire, Turn, Vendor, Wire};
use crate::ErrorKind::{Busy, Failed, InvalidKey, NoCredit, Rejected};
use crate::stt::streaming::HostedConfig;
use crate::stt::{assemblyai, deepgram, elevenlabs, openai_realtime, transcriptions};

/// Every hosted STT.
pub(super) static VENDORS: [Vendor; 9] = [
    Vendor {
        label: "Deepgram Nova",
        name: "Deepgram",
        make: deepgram::deepgram,
        wire: Wire::Socket(SocketWire {
            opening: &[],
            end_mark: "Finalize",
            goodbye: Some("CloseStream"),
            interim: |turn, _, text| vec![nova(turn, text, false)],
            last: |turn, text| vec![nova(turn, text, true)],
            hints: None,
            errors: &[],
        }),
    },
    Vendor {
        label: "Deepgram Flux",
        name: "Deepgram",
        make: |config, client, fallback, runtime| {
            let config = HostedConfig { model: "flux-general-en".into(), ..with_hints(config) };
            deepgram::deepgram(&config, client, fallback, runtime)
        },
        wire: Wire::Socket(SocketWire {
            opening: &[r#"{"type":"Connected","request_id":"r","sequence_id":0}"#],
            end_mark: "ForceEndTurn",
            goodbye: Some("CloseStream"),
            interim: |turn, _, text| vec![flux(turn, "Update", text)],
            last: |turn, text| vec![flux(turn, "EndOfTurn", text)],
            hints: Some(|turn, text| {
                ["EagerEndOfTurn", "TurnResumed"].map(|event| flux(turn, event, text)).into()
            }),
            errors: &[(
                r#"{"type":"Error","sequence_id":3,"code":"INTERNAL","description":"oops KEY"}"#,
                Failed,
            )],
        }),
    },
    Vendor {
        label: "AssemblyAI U3",
        name: "AssemblyAI",
        make: |config, client, fallback, runtime| {
            assemblyai::assemblyai(&with_hints(config), client, fallback, runtime)
        },
        wire: Wire::Socket(SocketWire {
            opening: &[r#"{"type":"Begin","id":"s","expires_at":1763900000}"#],
            end_mark: "ForceEndpoint",
            goodbye: Some("Terminate"),
            interim: |turn, _, text| vec![assembly(turn, text, false, false, 0.1)],
            last: |turn, text| vec![assembly(turn, text, true, true, 0.9)],
            hints: Some(|turn, text| {
                [0.7, 0.1].map(|p| assembly(turn, text, false, false, p)).into()
            }),
            errors: ASSEMBLY_ERRORS,
        }),
    },
    Vendor {
        label: "AssemblyAI Universal-Streaming",
        name: "AssemblyAI",
        make: |config, client, fallback, runtime| {
            let model = "universal-streaming-english".into();
            let config = HostedConfig { model, ..config.clone() };
            assemblyai::assemblyai(&config, client, fallback, runtime)
        },
        wire: Wire::Socket(SocketWire {
            opening: &[r#"{"type":"Begin","id":"s","expires_at":1763900000}"#],
            end_mark: "ForceEndpoint",
            goodbye: Some("Terminate"),
            interim: |turn, _, text| vec![assembly(turn, text, false, false, 0.1)],
            // The end of a turn comes twice.
            last: |turn, text| {
                let bare = text.to_lowercase();
                vec![assembly(turn, &bare, true, false, 0.9), assembly(turn, text, true, true, 0.9)]
            },
            hints: None,
            errors: ASSEMBLY_ERRORS,
        }),
    },
    Vendor {
        label: "ElevenLabs Scribe",
        name: "ElevenLabs",
        make: elevenlabs::elevenlabs,
        wire: Wire::Socket(SocketWire {
            opening: &[r#"{"message_type":"session_started","session_id":"s","config":{}}"#],
            end_mark: r#""commit":true"#,
            goodbye: None,
            interim: |_, _, text| vec![json!({"message_type": "partial_transcript", "text": text})],
            last: |_, text| vec![json!({"message_type": "committed_transcript", "text": text})],
            hints: None,
            errors: &[
                (r#"{"message_type":"auth_error","error":"bad key KEY"}"#, InvalidKey),
                (r#"{"message_type":"quota_exceeded","error":"KEY: pay"}"#, NoCredit),
                (r#"{"message_type":"rate_limited","error":"KEY"}"#, Busy),
                (r#"{"message_type":"invalid_request","error":"no such model, KEY"}"#, Rejected),
                (r#"{"message_type":"transcriber_error","error":"oops KEY"}"#, Failed),
            ],
        }),
    },
    Vendor {
        label: "OpenAI realtime",
        name: "OpenAI",
        make: openai_realtime::openai_realtime,
        wire: Wire::Socket(SocketWire {
            opening: &[r#"{"type":"session.created","session":{"id":"s"}}"#],
            end_mark: "input_audio_buffer.commit",
            goodbye: None,
            interim: |turn, before, text| {
                vec![realtime(turn, "delta", &json!({"delta": &text[before.len()..]}))]
            },
            last: |turn, text| {
                let (id, usage) = (item(turn), json!({"type": "tokens", "input_tokens": 3}));
                vec![
                    json!({"type": "input_audio_buffer.committed", "item_id": id}),
                    realtime(turn, "completed", &json!({"transcript": text, "usage": usage})),
                ]
            },
            hints: None,
            errors: &[
                (
                    r#"{"type":"error","error":{"type":"invalid_request_error",
                    "code":"invalid_api_key","message":"Incorrect key KEY"}}"#,
                    InvalidKey,
                ),
                (
                    r#"{"type":"error","error":{"code":"insufficient_quota","message":"KEY"}}"#,
                    NoCredit,
                ),
                (r#"{"type":"error","error":{"type":"rate_limit_error","message":"KEY"}}"#, Busy),
                (
                    r#"{"type":"error","error":{"type":"invalid_request_error",
                    "code":"invalid_model","message":"no such model, KEY"}}"#,
                    Rejected,
                ),
                (r#"{"type":"error","error":{"type":"server_error","message":"KEY"}}"#, Failed),
            ],
        }),
    },
    Vendor {
        label: "OpenAI transcriptions",
        name: "OpenAI",
        make: transcriptions::openai,
        wire: Wire::Requests,
    },
    Vendor {
        label: "Groq transcriptions",
        name: "Groq",
        make: transcriptions::groq,
        wire: Wire::Requests,
    },
    Vendor {
        label: "compatible transcriptions",
        name: "OpenAI-compatible STT",
        make: transcriptions::openai_compatible,
        wire: Wire::Requests,
    },
];

fn with_hints(config: &HostedConfig) -> HostedConfig {
    let mut config = config.clone();
    config.options.provider_turns = true;
    config
}

const ASSEMBLY_ERRORS: &[(&str, crate::ErrorKind)] = &[
    (r#"{"type":"Error","error_code":4001,"error":"Not authorized: KEY"}"#, InvalidKey),
    (r#"{"type":"Error","error_code":1008,"error":"Unauthorized Connection: KEY"}"#, InvalidKey),
    (r#"{"type":"Error","error_code":4002,"error":"Insufficient funds KEY"}"#, NoCredit),
    (r#"{"type":"Error","error_code":3009,"error":"Too many sessions KEY"}"#, Busy),
    (r#"{"type":"Error","error_code":3006,"error":"Invalid parameter KEY"}"#, Rejected),
    (r#"{"type":"Error","error_code":3005,"error":"Server error KEY"}"#, Failed),
];

fn nova(turn: &Turn, text: &str, is_final: bool) -> Value {
    let words: Vec<Value> = turn
        .words(text)
        .into_iter()
        .map(|(word, start, end)| json!({"word": word, "start": start, "end": end}))
        .collect();
    json!({
        "type": "Results", "channel_index": [0, 1], "start": turn.start,
        "duration": turn.duration, "is_final": is_final, "speech_final": false,
        "from_finalize": is_final, "metadata": {"request_id": "r"},
        "channel": {"alternatives": [
            {"transcript": text, "confidence": 0.99, "words": words},
        ]},
    })
}

fn flux(turn: &Turn, event: &str, text: &str) -> Value {
    let words: Vec<Value> = turn
        .words(text)
        .into_iter()
        .map(|(word, start, end)| json!({"word": word, "start": start, "end": end}))
        .collect();
    json!({
        "type": "TurnInfo", "request_id": "r", "event": event, "turn_index": turn.number,
        "transcript": text, "words": words, "end_of_turn_confidence": 0.7,
        "trigger": if event == "EndOfTurn" { json!("manual") } else { Value::Null },
    })
}

fn assembly(turn: &Turn, text: &str, ends: bool, is_formatted: bool, confidence: f64) -> Value {
    let ms = |seconds: f64| (seconds * 1e3).round();
    let words: Vec<Value> = turn
        .words(text)
        .into_iter()
        .map(|(word, start, end)| json!({"text": word, "start": ms(start), "end": ms(end)}))
        .collect();
    json!({
        "type": "Turn", "turn_order": turn.number, "turn_is_formatted": is_formatted,
        "end_of_turn": ends, "transcript": text, "end_of_turn_confidence": confidence,
        "words": words,
    })
}

fn item(turn: &Turn) -> String {
    format!("item_{}", turn.number)
}

fn realtime(turn: &Turn, kind: &str, content: &Value) -> Value {
    let mut message = content.clone();
    message["type"] = format!("conversation.item.input_audio_transcription.{kind}").into();
    message["item_id"] = item(turn).into();
    message
}
