//! Photos of custom avatars: the request, its check, and previews before an avatar is created.

use std::sync::Arc;

use axum::extract::State;
use models::face::photo_upload::{self, PreviewPose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::landmarks::Landmarks;
use super::{Gender, MAX_BODY_BYTES, NewCustomAvatar, Origin, check_name, picture};
use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::Json;
use crate::http::responses::JsonResult;
use crate::http::validate::FieldErrors;
use crate::state::AppState;

/// A request for an avatar from a picture.
#[derive(Default, Deserialize, JsonSchema)]
pub(crate) struct PhotoAvatarBody {
    #[schemars(length(min = 1))]
    avatar_name: String,
    #[schemars(extend("minLength" = 1))]
    gender: Gender,
    is_private: Option<bool>,
    /// The picture, as a base64 data URI: PNG, JPEG or WebP with one frontal face.
    #[schemars(length(min = 1))]
    input_image: String,
    landmarks: Option<Landmarks>,
    /// Size of the video; 512×512 by default.
    resolution: Option<Resolution>,
    /// Whether the person agrees to the avatar. Stored with the time and the API key. The
    /// configuration may require it.
    consent: Option<bool>,
    /// Whether the levelled crop of the photo stays stored, encrypted, so that the avatar can be drawn
    /// again. True by default.
    keep_source: Option<bool>,
}

/// Size of the video of an avatar from a photo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Resolution {
    #[default]
    #[serde(rename = "512x512")]
    Square,
    #[serde(rename = "1280x720")]
    Hd,
}

impl Resolution {
    fn size(self) -> [usize; 2] {
        match self {
            Self::Square => [512, 512],
            Self::Hd => [1280, 720],
        }
    }
}

/// A pose of a preview.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(crate) enum ShownPose {
    #[serde(rename = "rest")]
    Rest,
    #[serde(rename = "aa")]
    Aa,
    #[serde(rename = "PP")]
    Pp,
    #[serde(rename = "ou")]
    Ou,
    #[serde(rename = "blink")]
    Blink,
}

impl From<ShownPose> for PreviewPose {
    fn from(pose: ShownPose) -> Self {
        match pose {
            ShownPose::Rest => Self::Rest,
            ShownPose::Aa => Self::Aa,
            ShownPose::Pp => Self::Pp,
            ShownPose::Ou => Self::Ou,
            ShownPose::Blink => Self::Blink,
        }
    }
}

/// A request for previews of an avatar from a picture.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhotoPreviewBody {
    /// The picture, as a base64 data URI.
    #[schemars(length(min = 1))]
    input_image: String,
    landmarks: Option<Landmarks>,
    /// The poses to draw: the photo as it is, an open mouth, closed lips, round lips, closed eyes.
    #[serde(default)]
    show: Vec<ShownPose>,
    /// Size of the video; 512×512 by default.
    resolution: Option<Resolution>,
}

/// Response to a request for previews.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PhotoPreview")]
pub(crate) struct PhotoPreviewResponse {
    /// The 478 points of the face mesh, as fractions of the picture after EXIF rotation.
    landmarks: Vec<[f32; 2]>,
    /// Left, top, width and height of the face, as fractions of the picture.
    r#box: [f32; 4],
    /// What the person should know about the picture.
    warnings: Vec<String>,
    /// The poses by name, each as a base64 data URI.
    pictures: Map<String, Value>,
}

/// The base64 characters of a data URI with a picture. Adds an error for anything else.
fn read_image(uri: &str, errors: &FieldErrors) -> Result<String, ApiError> {
    if uri.trim().is_empty() {
        // A missing picture has its error already.
        return Ok(String::new());
    }
    if let Err(reason) = picture::check_data_uri(uri)? {
        errors.add("input_image", reason);
    }
    Ok(uri.split_once(',').map_or("", |(_, data)| data).to_owned())
}

pub(super) fn parse_photo_avatar(body: Value) -> Result<NewCustomAvatar, ApiError> {
    let errors = FieldErrors::default();
    let avatar: PhotoAvatarBody = body::read(body, &errors)?;
    check_name(&avatar.avatar_name, &errors);
    let request = photo_upload::Request {
        image: read_image(&avatar.input_image, &errors)?,
        landmarks: avatar.landmarks.map(|landmarks| landmarks.0),
        show: Vec::new(),
        size: avatar.resolution.unwrap_or_default().size(),
        keep_source: true,
    };
    errors.into_result(NewCustomAvatar {
        name: avatar.avatar_name,
        gender: avatar.gender.name(),
        is_private: avatar.is_private.unwrap_or(false),
        origin: Origin::Photo {
            request: Box::new(request),
            has_consent: avatar.consent.unwrap_or(false),
            keep_source: avatar.keep_source.unwrap_or(true),
        },
    })
}

/// Shows what an avatar from a picture would look like. Nothing is stored.
pub(super) async fn preview(
    State(state): State<Arc<AppState>>,
    _: ApiCaller,
    Json(body): Json<MAX_BODY_BYTES>,
) -> JsonResult<PhotoPreviewResponse> {
    let errors = FieldErrors::default();
    let body: PhotoPreviewBody = body::read(body, &errors)?;
    let mut show: Vec<PreviewPose> = body.show.into_iter().map(Into::into).collect();
    show.sort_unstable();
    show.dedup();
    let request = photo_upload::Request {
        image: read_image(&body.input_image, &errors)?,
        landmarks: body.landmarks.map(|landmarks| landmarks.0),
        show,
        size: body.resolution.unwrap_or_default().size(),
        keep_source: false,
    };
    let request = errors.into_result(request)?;
    let photo = state.photo_checks.check(request).await?;
    let pictures = photo.pictures.iter().map(|(pose, file)| {
        let name = json!(pose).as_str().unwrap_or_default().to_owned();
        (name, format!("data:image/webp;base64,{file}").into())
    });
    Ok(axum::Json(PhotoPreviewResponse {
        landmarks: photo.landmarks,
        r#box: photo.bounds,
        warnings: photo.warnings,
        pictures: pictures.collect(),
    }))
}
