//! Pictures of backgrounds: a request contains them as data URIs, a document as references.

use std::collections::HashMap;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use models::face::background::Background as DrawnBackground;
use serde_json::Value;

use crate::error::ApiError;
use crate::http::extract::{Json, MAX_JSON_BYTES, read_body};
use crate::resources::custom_avatars::{MAX_BODY_BYTES, picture};
use crate::state::AppState;
use crate::store::background::{IMAGE_PREFIX, sha256_hex};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, Transaction, variant};

/// Maximum number of pictures in one request.
const MAX_UPLOADS: usize = 20;

/// A JSON body of an agent or a template. The pictures in it do not count towards the maximum size
/// of a JSON body.
pub(crate) struct AgentJson(pub(crate) Value);

impl<S: Send + Sync> FromRequest<S> for AgentJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(body, &parts.headers, MAX_BODY_BYTES).await?;
        let length = bytes.len();
        let request = Request::from_parts(parts, Body::from(bytes));
        let read = Json::<MAX_BODY_BYTES>::from_request(request, state).await;
        let picture_bytes = match &read {
            Ok(Json(body)) => uploads(body).map(str::len).sum(),
            Err(_) => 0,
        };
        if length - picture_bytes > MAX_JSON_BYTES {
            return Err(ApiError::PayloadTooLarge);
        }
        read.map(|Json(body)| Self(body))
    }
}

/// The texts of the pictures in a body.
fn uploads(body: &Value) -> impl Iterator<Item = &str> {
    let avatars = body["avatars"].as_array().into_iter().flatten();
    avatars.filter_map(|avatar| avatar["background"]["image"].as_str())
}

/// Pictures in base64, by the SHA-256 of their files in hexadecimal.
#[derive(Default)]
pub(crate) struct Images(HashMap<String, String>);

impl Images {
    /// Decodes the uploaded pictures in a body and replaces them by their references. One that is no
    /// data URI of a picture stays: [`super::fields`] reports it.
    ///
    /// # Errors
    /// 400 with the field for a picture that cannot be used, 503 if too many wait.
    pub(crate) async fn take(state: &AppState, body: &mut Value) -> Result<Self, ApiError> {
        let mut images = Self::default();
        let Some(Value::Array(avatars)) = body.get_mut("avatars") else { return Ok(images) };
        let mut count = 0;
        for (i, avatar) in avatars.iter_mut().enumerate() {
            let Some(background) = avatar.get_mut("background") else { continue };
            if background.get("type").is_none_or(|kind| kind != "image") {
                continue;
            }
            let Some(Value::String(image)) = background.get_mut("image") else { continue };
            if !matches!(picture::check_data_uri(image), Ok(Ok(()))) {
                continue;
            }
            let path = || format!("avatars[{i}].background.image");
            count += 1;
            if count > MAX_UPLOADS {
                let reason = format!("is one of more than {MAX_UPLOADS} pictures in one request");
                return Err(ApiError::invalid_field(path(), reason));
            }
            let file = image.split_once(',').map_or("", |(_, data)| data).to_owned();
            let small = state.photo_checks.normalize_background(file).await?;
            let small = small.map_err(|error| ApiError::invalid_field(path(), error))?;
            *image = format!("{IMAGE_PREFIX}{}", images.add(small));
        }
        Ok(images)
    }

    /// The pictures of a stored agent or template that are in its secrets.
    pub(crate) fn add_stored(&mut self, secrets: &AgentSecrets) {
        for image in secrets.avatars.iter().filter_map(|avatar| avatar.background_image.clone()) {
            self.add(image);
        }
    }

    fn add(&mut self, image: String) -> String {
        let hash = sha256_hex(&STANDARD.decode(&image).unwrap_or_default());
        self.0.insert(hash.clone(), image);
        hash
    }

    /// The picture with this hash: one of these, or one of a background that an agent of the
    /// workspace uses.
    pub(crate) async fn find(
        &self,
        state: &AppState,
        tx: &mut Transaction,
        workspace: &str,
        hash: &str,
    ) -> store::Result<Option<String>> {
        if let Some(image) = self.0.get(hash) {
            return Ok(Some(image.clone()));
        }
        let Some((id, sealed)) = variant::find_image(tx, workspace, hash).await? else {
            return Ok(None);
        };
        match secrets::open(&state.vault, &id, &sealed)? {
            DrawnBackground::Image { image } => Ok(Some(image)),
            _ => Ok(None),
        }
    }
}
