//! The body of a request for a video: JSON with the sound in base64, or a multipart form.

use std::io;

use axum::extract::{FromRequest as _, Multipart, Request, multipart::MultipartError};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use models::film::{MAX_AUDIO_BYTES, audio_kind};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::files::IncomingVideo;
use crate::error::ApiError;
use crate::http::extract::{media_type, read_body};
use crate::resources::recordings::child::Failure;
use crate::resources::recordings::worker::check_space;
use crate::state::api_key::to_hex;

/// Maximum size of a JSON body in bytes.
const MAX_JSON_BYTES: usize = 14 << 20;
/// Maximum size of a form in bytes: that of a sound, with some margin.
pub(super) const MAX_FORM_BYTES: usize = 51 << 20;
/// Maximum size of a field of a form other than the sound, bytes.
const MAX_FIELD_BYTES: usize = 1 << 20;
/// Bytes that show the type of a sound.
const START_BYTES: usize = 12;
/// Fields of a form that are JSON texts.
const JSON_FIELDS: [&str; 2] = ["tts", "meta_data"];

const NOT_BASE64: &str = "must be a base64 data URI or base64 text";
const TWO_SOUNDS: &str = "must be given once";

/// The parts of a request.
pub(super) struct Form {
    /// The fields, without the sound.
    pub(super) body: Value,
    /// The sound, which is in its file; or what is wrong with it.
    pub(super) audio: Option<Result<Audio, &'static str>>,
}

/// A sound that was received.
#[derive(Debug)]
pub(super) struct Audio {
    /// SHA-256 in hexadecimal.
    pub(super) sha256: String,
}

/// Reads a request. A sound is written to the file of `video`.
///
/// # Errors
/// 413, 415, or 400 if the body is neither JSON nor a form; 503 if the disk is full.
pub(super) async fn read(
    request: Request,
    video: &IncomingVideo,
    min_free: u64,
) -> Result<Form, ApiError> {
    match media_type(request.headers()).as_deref() {
        Some("multipart/form-data") => read_multipart(request, video, min_free).await,
        Some(kind) if kind != "application/json" && !kind.ends_with("+json") => {
            Err(ApiError::UnsupportedMediaType("application/json or multipart/form-data"))
        }
        _ => read_json(request, video, min_free).await,
    }
}

async fn read_json(
    request: Request,
    video: &IncomingVideo,
    min_free: u64,
) -> Result<Form, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_body(body, &parts.headers, MAX_JSON_BYTES).await?;
    let mut body: Value =
        serde_json::from_slice(&bytes).map_err(|_| ApiError::Invalid(Vec::new()))?;
    drop(bytes);
    // Anything but a text is an error of its type.
    let audio = match body.get_mut("audio") {
        Some(audio @ Value::String(_)) => audio.take(),
        _ => Value::Null,
    };
    let audio = match audio.as_str() {
        None | Some("") => None,
        Some(text) => Some(match decode_base64(text) {
            Some(sound) => {
                let mut receiver = Receiver::start(video, min_free).await?;
                receiver.push(&sound).await?;
                receiver.finish().await?
            }
            None => Err(NOT_BASE64),
        }),
    };
    Ok(Form { body, audio })
}

/// The bytes of a data URI or of plain base64.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let data = match text.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,")?.1,
        None => text,
    };
    STANDARD.decode(data.trim()).ok()
}

async fn read_multipart(
    request: Request,
    video: &IncomingVideo,
    min_free: u64,
) -> Result<Form, ApiError> {
    let mut parts =
        Multipart::from_request(request, &()).await.map_err(|_| ApiError::Invalid(Vec::new()))?;
    let mut fields = Map::new();
    let mut audio = None;
    while let Some(mut part) = parts.next_field().await.map_err(form_error)? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == "audio" {
            let mut receiver = Receiver::start(video, min_free).await?;
            while let Some(chunk) = part.chunk().await.map_err(form_error)? {
                receiver.push(&chunk).await?;
            }
            let received = receiver.finish().await?;
            audio = Some(if audio.is_some() { Err(TWO_SOUNDS) } else { received });
            continue;
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(form_error)? {
            if bytes.len() + chunk.len() > MAX_FIELD_BYTES {
                return Err(ApiError::PayloadTooLarge);
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| ApiError::invalid_field(name.as_str(), "must be UTF-8 text"))?;
        // NUL characters are removed: no text needs them, and PostgreSQL cannot store them.
        let value = field_value(&name, text.replace('\0', ""))?;
        fields.insert(name, value);
    }
    Ok(Form { body: Value::Object(fields), audio })
}

/// The value of a text field, as JSON has it.
fn field_value(name: &str, text: String) -> Result<Value, ApiError> {
    let is_object = name == "background" && text.trim_start().starts_with('{');
    if JSON_FIELDS.contains(&name) || is_object {
        return serde_json::from_str(&text)
            .map_err(|_| ApiError::invalid_field(name, "must be JSON"));
    }
    Ok(match name {
        "frame_rate" => text.trim().parse::<u64>().map_or(Value::String(text), Value::from),
        _ => Value::String(text),
    })
}

fn form_error(error: MultipartError) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::PayloadTooLarge
    } else {
        ApiError::Invalid(Vec::new())
    }
}

/// Writes a sound to its file.
struct Receiver {
    file: tokio::fs::File,
    hash: Sha256,
    start: Vec<u8>,
    bytes: usize,
}

impl Receiver {
    async fn start(video: &IncomingVideo, min_free: u64) -> Result<Self, ApiError> {
        let files = video.files();
        files.create().await.map_err(|error| disk_error(&error))?;
        if let Err(Failure::Waiting(reason)) = check_space(files.folder(), 0, min_free) {
            return Err(ApiError::Unavailable(reason));
        }
        let file = tokio::fs::File::create(files.incoming()).await;
        let file = file.map_err(|error| disk_error(&error))?;
        Ok(Self { file, hash: Sha256::new(), start: Vec::new(), bytes: 0 })
    }

    async fn push(&mut self, part: &[u8]) -> Result<(), ApiError> {
        self.bytes += part.len();
        if self.bytes > MAX_AUDIO_BYTES {
            return Err(ApiError::PayloadTooLarge);
        }
        let missing = START_BYTES.saturating_sub(self.start.len());
        self.start.extend(part.iter().take(missing));
        self.hash.update(part);
        self.file.write_all(part).await.map_err(|error| disk_error(&error))
    }

    /// The sound, once it is on the disk; or what is wrong with it.
    async fn finish(mut self) -> Result<Result<Audio, &'static str>, ApiError> {
        if self.bytes == 0 {
            return Ok(Err("must not be empty"));
        }
        if audio_kind(&self.start).is_none() {
            return Ok(Err("must be WAV, MP3 or Ogg"));
        }
        self.file.flush().await.map_err(|error| disk_error(&error))?;
        self.file.sync_all().await.map_err(|error| disk_error(&error))?;
        Ok(Ok(Audio { sha256: to_hex(&self.hash.finalize().into()) }))
    }
}

fn disk_error(error: &io::Error) -> ApiError {
    if engine_api::is_out_of_space(error) {
        return ApiError::Unavailable("the disk of the server is full".into());
    }
    ApiError::Internal("Failed to store the audio", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_is_base64_with_or_without_the_head_of_a_data_uri() {
        assert_eq!(decode_base64("UklGRg=="), Some(b"RIFF".to_vec()));
        assert_eq!(decode_base64("data:audio/wav;base64,UklGRg=="), Some(b"RIFF".to_vec()));
        for text in ["data:audio/wav,RIFF", "RIFF!", "https://a.example/a.wav"] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }

    #[test]
    fn the_fields_of_a_form_are_those_of_json() {
        let value = |name: &str, text: &str| field_value(name, text.into()).ok();
        assert_eq!(value("frame_rate", "30"), Some(30.into()));
        assert_eq!(value("frame_rate", "fast"), Some("fast".into()));
        assert_eq!(value("title", "30"), Some("30".into()));
        assert_eq!(value("background", "#102030"), Some("#102030".into()));
        assert_eq!(value("meta_data", "{\"a\": 1}"), Some(serde_json::json!({"a": 1})));
        assert_eq!(value("tts", "heart"), None);
    }
}
