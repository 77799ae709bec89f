//! A request for a video: its fields and the checks that need nothing but them.

use conversation::script;
use models::film::{FRAME_RATES, MAX_PAUSE_SECONDS, MAX_TEXT_CHARS};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::document::{Captions, Document, VideoFormat, VideoTts};
use super::form::Form;
use crate::error::ApiError;
use crate::http::body;
use crate::http::validate::FieldErrors;
use crate::resources::recordings::conversion::NO_FFMPEG;
use crate::store::framing::VideoSize;

const DEFAULT_FRAME_RATE: u32 = 25;
const MAX_TITLE_CHARS: usize = 200;
/// Maximum length of `meta_data` as JSON, characters.
const MAX_META_DATA_CHARS: usize = 10_000;
const NOT_A_COLOUR: &str = "must be a colour such as #c0906f";

/// A request for a video.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "VideoBody")]
pub(crate) struct VideoRequest {
    /// The avatar, stock or custom.
    #[schemars(length(min = 1))]
    avatar_key_id: String,
    /// What the avatar says. A blank line is a pause. Directions: `[pause 1.5]`, `[nod]`, `[warm]`,
    /// `[glad]`, `[concerned]`, `[curious]`, `[calm]`.
    #[schemars(length(max = MAX_TEXT_CHARS))]
    text: Option<String>,
    /// Or the sound to which its lips move: a WAV, MP3 or Ogg file of at most 30 minutes in base64,
    /// as a data URI or without its head.
    #[expect(dead_code, reason = "only its type is checked: the form takes it out")]
    audio: Option<String>,
    #[serde(default)]
    tts: VideoTts,
    #[serde(default)]
    size: VideoSize,
    /// Pictures per second; 25 by default.
    #[schemars(range(min = *FRAME_RATES.start(), max = *FRAME_RATES.end()), extend("multipleOf" = 1))]
    frame_rate: Option<Number>,
    /// What replaces the avatar's background: a colour such as `#c0906f`, or an agent's background
    /// of the type `colour`.
    #[schemars(extend("type" = ["string", "object"]))]
    background: Option<Value>,
    /// `burned` needs ffmpeg on the server.
    #[serde(default)]
    captions: Captions,
    /// `mp4` needs ffmpeg on the server.
    #[serde(default)]
    format: VideoFormat,
    #[schemars(length(max = MAX_TITLE_CHARS))]
    title: Option<String>,
    /// Receives `video_completed` or `video_failed`.
    #[schemars(extend("format" = "uri"))]
    callback_url: Option<String>,
    meta_data: Option<Map<String, Value>>,
}

/// What a request asks for. All errors of its fields are in `errors`.
///
/// # Errors
/// 400 without details if the body is not an object.
pub(super) fn parse(
    form: Form,
    has_ffmpeg: bool,
    errors: &FieldErrors,
) -> Result<Document, ApiError> {
    let Form { body, audio } = form;
    let request: VideoRequest = body::read(body, errors)?;
    let text = request.text.filter(|text| !text.trim().is_empty());
    let has_audio = audio.is_some();
    let audio = audio.and_then(|audio| audio.map_err(|why| errors.add("audio", why)).ok());
    match (&text, has_audio) {
        _ if errors.contains("text") => {}
        (None, false) => errors.add("text", "is required if there is no audio"),
        (Some(_), true) => errors.add("audio", "must not come with a text"),
        (Some(text), false) => check_text(text, errors),
        (None, true) => {}
    }
    if has_audio && request.captions != Captions::None {
        errors.add("captions", "needs a text");
    }
    let needs_ffmpeg = format!("cannot be used: {NO_FFMPEG}");
    if !has_ffmpeg && request.captions == Captions::Burned {
        errors.add("captions", &*needs_ffmpeg);
    }
    if !has_ffmpeg && request.format == VideoFormat::Mp4 {
        errors.add("format", needs_ffmpeg);
    }
    let title = request.title.filter(|title| !title.trim().is_empty());
    if title.as_ref().is_some_and(|title| title.chars().any(char::is_control)) {
        errors.add("title", "must not contain control characters");
    }
    let meta_data_chars = request
        .meta_data
        .as_ref()
        .map_or(0, |map| serde_json::to_string(map).map_or(0, |text| text.chars().count()));
    if meta_data_chars > MAX_META_DATA_CHARS {
        errors.add("meta_data", format!("must be at most {MAX_META_DATA_CHARS} characters"));
    }
    let background = request.background.as_ref().and_then(|background| {
        let colour = parse_colour(background);
        if colour.is_none() && !errors.contains("background") {
            errors.add("background", NOT_A_COLOUR);
        }
        colour
    });
    let frame_rate = request.frame_rate.and_then(|rate| rate.as_f64());
    Ok(Document {
        title,
        avatar_key_id: request.avatar_key_id,
        tts: text.is_some().then_some(request.tts),
        text,
        audio: audio.map(|audio| audio.sha256),
        size: request.size,
        frame_rate: frame_rate.map_or(DEFAULT_FRAME_RATE, |rate| rate as u32),
        background,
        captions: request.captions,
        format: request.format,
        callback_url: request.callback_url.unwrap_or_default(),
        meta_data: request.meta_data,
    })
}

/// What a JSON body asks for, without a sound.
#[cfg(test)]
pub(crate) fn parse_json(body: Value) -> Result<Value, ApiError> {
    let errors = FieldErrors::default();
    let document = parse(Form { body, audio: None }, true, &errors)?;
    errors.into_result(serde_json::json!(document))
}

fn check_text(text: &str, errors: &FieldErrors) {
    let script = script::parse(text);
    if script.segments.is_empty() {
        errors.add("text", "contains nothing to speak");
    } else if script.pauses.as_secs_f64() > f64::from(MAX_PAUSE_SECONDS) {
        errors.add("text", format!("pauses for longer than {MAX_PAUSE_SECONDS} s in total"));
    }
}

/// The colour of a background in lower case; `None` if it is none.
fn parse_colour(background: &Value) -> Option<String> {
    let colour = match background {
        Value::Object(map) if map.get("type")? == "colour" => map.get("colour")?,
        other => other,
    };
    let digits = colour.as_str()?.strip_prefix('#')?;
    let is_colour = digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_colour.then(|| format!("#{}", digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::videos::form::Audio;

    fn faults(body: Value, audio: Option<Result<Audio, &'static str>>) -> Vec<String> {
        let errors = FieldErrors::default();
        let found = parse(Form { body, audio }, false, &errors);
        match found.and_then(|document| errors.into_result(document)) {
            Ok(_) => Vec::new(),
            Err(ApiError::Invalid(errors)) => {
                errors.into_iter().map(|one| format!("{} {}", one.field, one.reason)).collect()
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn fault_of(extra: Value) -> Vec<String> {
        let mut body = json!({"avatar_key_id": "ada", "text": "Hello."});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        faults(body, None)
    }

    #[test]
    fn the_smallest_request_gets_every_default() {
        let errors = FieldErrors::default();
        let body = json!({"avatar_key_id": "ada", "text": "Hello."});
        let video = parse(Form { body, audio: None }, false, &errors).unwrap();
        let video = errors.into_result(video).unwrap();
        let expected = json!({
            "title": null, "avatar_key_id": "ada", "text": "Hello.", "audio": null,
            "tts": {"provider": null, "model_id": null, "voice_id": null, "language": null,
                    "custom_pronunciation": []},
            "size": "512x512", "frame_rate": 25, "background": null, "captions": "none",
            "format": "webm", "callback_url": "", "meta_data": null,
        });
        assert_eq!(json!(video), expected);
    }

    #[test]
    fn each_invalid_field_is_named_with_its_reason() {
        let ffmpeg = "cannot be used: ffmpeg is not installed on the server";
        for (extra, expected) in [
            (json!({}), vec![]),
            (json!({"avatar_key_id": ""}), vec!["avatar_key_id must not be empty"]),
            (json!({"avatar_key_id": null}), vec!["avatar_key_id is required"]),
            (json!({"avatar_key_id": 7}), vec!["avatar_key_id must be a string"]),
            (json!({"text": " \n"}), vec!["text is required if there is no audio"]),
            (json!({"text": "[warm] [pause 1] ..."}), vec!["text contains nothing to speak"]),
            (json!({"text": "x".repeat(20_001)}), vec!["text must be at most 20000 characters"]),
            (
                json!({"text": format!("Hi{}", "[pause 10]".repeat(61))}),
                vec!["text pauses for longer than 600 s in total"],
            ),
            (json!({"audio": 7}), vec!["audio must be a string"]),
            (json!({"size": "640x480"}), vec!["size must be one of 512x512, 1280x720, 720x1280"]),
            (json!({"frame_rate": 9}), vec!["frame_rate must be between 10 and 30"]),
            (json!({"frame_rate": 31}), vec!["frame_rate must be between 10 and 30"]),
            (json!({"frame_rate": 24.5}), vec!["frame_rate must be a whole number"]),
            (json!({"captions": "srt"}), vec!["captions must be one of none, vtt, burned"]),
            (json!({"format": "avi"}), vec!["format must be one of webm, mp4"]),
            (json!({"captions": "burned"}), vec![&*format!("captions {ffmpeg}")]),
            (json!({"format": "mp4"}), vec![&*format!("format {ffmpeg}")]),
            (json!({"background": "red"}), vec![&*format!("background {NOT_A_COLOUR}")]),
            (json!({"background": {"type": "blur"}}), vec![&*format!("background {NOT_A_COLOUR}")]),
            (json!({"background": 7}), vec!["background must be a string or an object"]),
            (json!({"title": "x".repeat(201)}), vec!["title must be at most 200 characters"]),
            (json!({"title": "a\nb"}), vec!["title must not contain control characters"]),
            (json!({"callback_url": "ftp://x"}), vec!["callback_url must be a valid http(s) URL"]),
            (
                json!({"meta_data": {"a": "x".repeat(10_000)}}),
                vec!["meta_data must be at most 10000 characters"],
            ),
            (json!({"tts": {"provider": 7}}), vec!["tts.provider must be a string"]),
        ] {
            let found = fault_of(extra.clone());
            assert_eq!(
                found,
                expected,
                "{}",
                &extra.to_string()[..extra.to_string().len().min(80)]
            );
        }
    }

    #[test]
    fn a_sound_replaces_the_text_and_has_no_captions() {
        let sound = || Some(Ok(Audio { sha256: "0".repeat(64) }));
        let body = || json!({"avatar_key_id": "ada"});
        assert_eq!(faults(body(), sound()), Vec::<String>::new());
        let both = json!({"avatar_key_id": "ada", "text": "Hello."});
        assert_eq!(faults(both, sound()), ["audio must not come with a text"]);
        let captions = json!({"avatar_key_id": "ada", "captions": "vtt"});
        assert_eq!(faults(captions, sound()), ["captions needs a text"]);
        assert_eq!(faults(body(), Some(Err("must not be empty"))), ["audio must not be empty"]);
    }

    #[test]
    fn a_colour_is_written_in_two_ways() {
        for background in [json!("#C0906f"), json!({"type": "colour", "colour": "#c0906F"})] {
            assert_eq!(parse_colour(&background).as_deref(), Some("#c0906f"));
        }
        for background in [json!({"type": "keep"}), json!({"colour": "#c0906f"}), json!("c0906f")] {
            assert_eq!(parse_colour(&background), None, "{background}");
        }
    }
}
