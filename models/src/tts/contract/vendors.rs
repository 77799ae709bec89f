//! How the servers of the vendors read and write their messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Piece, SocketWire, Vendor, Wire};
use crate::ErrorKind::{Busy, Failed, InvalidKey, NoCredit, Rejected};
use crate::hosted::loopback::{Frame, KEY};
use crate::tts::cartesia::{CartesiaConfig, cartesia};
use crate::tts::deepgram::{DeepgramTtsConfig, deepgram};
use crate::tts::elevenlabs::{ElevenLabsConfig, elevenlabs};
use crate::tts::openai::{OpenAiConfig, openai};

/// Every hosted TTS.
pub(super) static VENDORS: [Vendor; 6] = [
    Vendor {
        label: "ElevenLabs",
        name: "ElevenLabs",
        make: |url, client, runtime| {
            let token = Some(KEY.into());
            elevenlabs(&ElevenLabsConfig { url, token, ..Default::default() }, client, runtime)
        },
        wire: Wire::Socket(SocketWire {
            read: |message, text| read_text(message, text, message["text"].as_str()),
            is_cancel: |message| message["close_context"] == true,
            word: |piece| {
                let (chars, starts, lengths) = piece.characters();
                vec![Frame::text(json!({
                    "audio": piece.base64(), "contextId": piece.context, "isFinal": null,
                    "normalizedAlignment": null,
                    "alignment": {
                        "chars": chars, "charStartTimesMs": starts, "charDurationsMs": lengths,
                    },
                }))]
            },
            end: |context, _| {
                vec![Frame::text(json!({"type": "flush_done", "contextId": context}))]
            },
            cancelled: |context| vec![Frame::text(json!({"isFinal": true, "contextId": context}))],
            has_words: true,
            has_binary_sound: false,
            errors: ELEVENLABS_ERRORS,
        }),
    },
    Vendor {
        label: "ElevenLabs dialogue",
        name: "ElevenLabs",
        make: |url, client, runtime| {
            let (token, model) = (Some(KEY.into()), "eleven_v4_turbo".into());
            let config = ElevenLabsConfig { url, token, model, ..Default::default() };
            elevenlabs(&config, client, runtime)
        },
        wire: Wire::Socket(SocketWire {
            read: |message, text| read_text(message, text, message["inputs"][0]["text"].as_str()),
            is_cancel: |message| message["close_context"] == true,
            word: |piece| {
                let (chars, starts, lengths) = piece.characters();
                vec![Frame::text(json!({
                    "audio": piece.base64(), "context_id": piece.context,
                    "alignment": {
                        "chars": chars, "char_start_times_ms": starts,
                        "char_durations_ms": lengths,
                    },
                }))]
            },
            // Only the end of the reply is marked.
            end: |context, is_last| {
                let last = json!({"is_final": true, "context_id": context});
                is_last.then(|| Frame::text(last)).into_iter().collect()
            },
            cancelled: |context| {
                vec![Frame::text(json!({"is_final": true, "context_id": context}))]
            },
            has_words: true,
            has_binary_sound: false,
            errors: ELEVENLABS_ERRORS,
        }),
    },
    Vendor {
        label: "Cartesia",
        name: "Cartesia",
        make: |url, client, runtime| {
            let token = Some(KEY.into());
            cartesia(&CartesiaConfig { url, token, ..Default::default() }, client, runtime)
        },
        wire: Wire::Socket(SocketWire {
            read: |message, text| {
                text.push_str(message["transcript"].as_str()?);
                Some(message["context_id"].as_str()?.to_owned())
            },
            is_cancel: |message| message["cancel"] == true,
            word: |piece| {
                let (begin, end) = (piece.begin as f64 / 1e3, piece.end() as f64 / 1e3);
                vec![
                    Frame::text(json!({
                        "type": "timestamps", "context_id": piece.context, "done": false,
                        "word_timestamps": {
                            "words": [piece.word], "start": [begin], "end": [end],
                        },
                    })),
                    Frame::text(json!({
                        "type": "chunk", "context_id": piece.context, "data": piece.base64(),
                        "step_time": 9.5, "status_code": 206, "done": false,
                    })),
                ]
            },
            end: |context, _| {
                vec![Frame::text(json!({
                    "type": "flush_done", "context_id": context, "flush_id": 1, "flush_done": true,
                }))]
            },
            cancelled: |context| {
                vec![Frame::text(json!({"type": "done", "context_id": context, "done": true}))]
            },
            has_words: true,
            has_binary_sound: false,
            errors: &[
                (
                    r#"{"type":"error","context_id":"CONTEXT","status_code":401,"error":"KEY"}"#,
                    InvalidKey,
                ),
                (r#"{"type":"error","status_code":402,"title":"pay","message":"KEY"}"#, NoCredit),
                (
                    r#"{"type":"error","context_id":"CONTEXT","status_code":429,
                    "error_code":"concurrency_limited","message":"KEY"}"#,
                    Busy,
                ),
                (
                    r#"{"type":"error","context_id":"CONTEXT","status_code":404,
                    "title":"Voice not found","message":"no voice x for KEY"}"#,
                    Rejected,
                ),
                (r#"{"type":"error","status_code":500,"message":"oops KEY"}"#, Failed),
            ],
        }),
    },
    Vendor {
        label: "Deepgram Aura",
        name: "Deepgram",
        make: |url, client, runtime| {
            let token = Some(KEY.into());
            deepgram(&DeepgramTtsConfig { url, token, ..Default::default() }, client, runtime)
        },
        wire: Wire::Socket(SocketWire {
            read: |message, text| match message["type"].as_str()? {
                "Speak" => {
                    text.push_str(message["text"].as_str()?);
                    None
                }
                "Flush" => Some(String::new()),
                _ => None,
            },
            is_cancel: |message| message["type"] == "Clear",
            word: |piece| vec![Frame::Binary(piece.pcm())],
            end: |_, _| vec![Frame::text(json!({"type": "Flushed", "sequence_id": 0}))],
            cancelled: |_| vec![Frame::text(json!({"type": "Cleared", "sequence_id": 0}))],
            has_words: false,
            has_binary_sound: true,
            errors: &[
                (r#"{"type":"Error","description":"oops KEY"}"#, Failed),
                (r#"{"type":"Error","description":"insufficient_quota of KEY"}"#, NoCredit),
            ],
        }),
    },
    Vendor {
        label: "compatible server with pcm",
        name: "OpenAI-compatible TTS",
        make: |url, client, runtime| {
            let (url, token) = (format!("{url}/v1"), Some(KEY.into()));
            openai(&OpenAiConfig { url, token, ..Default::default() }, client, runtime)
        },
        wire: Wire::Requests("audio/pcm", Vec::new),
    },
    Vendor {
        label: "compatible server with wav",
        name: "OpenAI-compatible TTS",
        make: |url, client, runtime| {
            let (url, token) = (format!("{url}/v1"), Some(KEY.into()));
            openai(&OpenAiConfig { url, token, ..Default::default() }, client, runtime)
        },
        wire: Wire::Requests("audio/wav", wav_header),
    },
];

const ELEVENLABS_ERRORS: &[(&str, crate::ErrorKind)] = &[
    (r#"{"error":"invalid_api_key","message":"Invalid API key: KEY","code":1008}"#, InvalidKey),
    (r#"{"error":"quota_exceeded","message":"0 left for KEY","code":1008}"#, NoCredit),
    (r#"{"error":"max_active_conversations","message":"KEY","code":1008}"#, Busy),
    (r#"{"error":"voice_id_does_not_exist","message":"no voice, KEY","code":1008}"#, Rejected),
    (r#"{"error":"internal","message":"oops KEY"}"#, Failed),
];

/// Adds the text of a message of ElevenLabs, whose flush ends it.
fn read_text(message: &Value, text: &mut String, more: Option<&str>) -> Option<String> {
    text.push_str(more?);
    let context = message["context_id"].as_str()?.to_owned();
    (message["flush"] == true).then_some(context)
}

/// The header of a WAV file whose size is not known.
fn wav_header() -> Vec<u8> {
    let (rate, endless) = (24_000_u32, u32::MAX);
    let mut header = b"RIFF".to_vec();
    header.extend(endless.to_le_bytes());
    header.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    header.extend(rate.to_le_bytes());
    header.extend((2 * rate).to_le_bytes());
    header.extend(b"\x02\0\x10\0data");
    header.extend(endless.to_le_bytes());
    header
}

impl Piece<'_> {
    pub(super) fn pcm(&self) -> Vec<u8> {
        vec![self.value; self.millis * 24].into_iter().flat_map(i16::to_le_bytes).collect()
    }

    fn base64(&self) -> String {
        STANDARD.encode(self.pcm())
    }

    fn end(&self) -> usize {
        self.begin + self.millis
    }

    /// The characters of the word and the blank after it, with their starts and durations in ms.
    fn characters(&self) -> (Vec<String>, Vec<f64>, Vec<f64>) {
        let characters: Vec<String> = self.word.chars().chain([' ']).map(String::from).collect();
        let length = self.millis as f64 / characters.len() as f64;
        let starts = (0..characters.len()).map(|n| self.begin as f64 + n as f64 * length);
        let (starts, lengths) = (starts.collect(), vec![length; characters.len()]);
        (characters, starts, lengths)
    }
}
