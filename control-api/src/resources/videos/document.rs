//! What a video shows and says, as it is stored and returned.

use models::film::seed_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::store::framing::VideoSize;
use crate::store::providers::Pronunciation;

/// Whether a video has captions: none, in a file, or drawn into the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Captions {
    #[default]
    None,
    Vtt,
    Burned,
}

/// Format of a video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VideoFormat {
    #[default]
    Webm,
    Mp4,
}

impl VideoFormat {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Webm => "webm",
            Self::Mp4 => "mp4",
        }
    }
}

/// The voice of a video. Its key is that of the workspace or of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct VideoTts {
    /// Null = that of agents that name none.
    pub(crate) provider: Option<String>,
    /// Null = the provider's default.
    pub(crate) model_id: Option<String>,
    /// Null = the avatar's own, or the provider's default.
    #[schemars(length(max = 1_000))]
    pub(crate) voice_id: Option<String>,
    /// BCP 47 tag; null = the provider's default.
    pub(crate) language: Option<String>,
    #[schemars(length(max = 100))]
    pub(crate) custom_pronunciation: Vec<Pronunciation>,
}

/// A request, with all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Document {
    pub(super) title: Option<String>,
    pub(super) avatar_key_id: String,
    pub(super) text: Option<String>,
    /// SHA-256 of the uploaded sound.
    pub(super) audio: Option<String>,
    /// `None` for an uploaded sound.
    pub(super) tts: Option<VideoTts>,
    pub(super) size: VideoSize,
    pub(super) frame_rate: u32,
    /// A colour such as `#c0906f`, in lower case.
    pub(super) background: Option<String>,
    pub(super) captions: Captions,
    pub(super) format: VideoFormat,
    pub(super) callback_url: String,
    pub(super) meta_data: Option<Map<String, Value>>,
}

impl Document {
    /// The seed of gaze, blinks and motion: that of what is seen and heard.
    pub(super) fn seed(&self) -> u64 {
        let content = json!([
            self.avatar_key_id,
            self.text,
            self.audio,
            self.tts,
            self.size,
            self.frame_rate,
            self.background,
        ]);
        seed_of(content.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_that_of_what_is_seen_and_heard() {
        let video = Document { text: Some("Hello.".into()), ..Document::default() };
        let same = Document {
            title: Some("A title".into()),
            captions: Captions::Vtt,
            format: VideoFormat::Mp4,
            callback_url: "https://shop.example".into(),
            ..video.clone()
        };
        assert_eq!(video.seed(), same.seed());
        let others = [
            Document { text: Some("Hello!".into()), ..video.clone() },
            Document { avatar_key_id: "mia".into(), ..video.clone() },
            Document { audio: Some("x".into()), ..video.clone() },
            Document { size: VideoSize::Portrait, ..video.clone() },
            Document { frame_rate: 30, ..video.clone() },
            Document { background: Some("#102030".into()), ..video.clone() },
        ];
        for other in others {
            assert_ne!(video.seed(), other.seed(), "{other:?}");
        }
    }
}
