//! The picture of a video: a stock avatar as it is, a custom avatar, or a variant of one of both,
//! which is drawn first if nothing else shows it. A variant stays as long as a video or an agent
//! refers to it.

use serde_json::json;

use crate::clock;
use crate::error::ApiError;
use crate::http::quota;
use crate::resources::custom_avatars;
use crate::resources::variants::{Choice, MAX_IN_USE, check_drawable, is_stock};
use crate::state::AppState;
use crate::store::background::{Background, BackgroundKind};
use crate::store::framing::{Framing, VideoSize};
use crate::store::variant::{self, Draft};
use crate::store::{Transaction, new_id, normalize_id, video};

const UNKNOWN_AVATAR: &str = "is not an existing avatar";
const FAILED_AVATAR: &str = "could not be drawn: create the avatar again, or choose another one";

/// What a video shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// The row of `custom_avatar`; `None`: the stock avatar as it is.
    pub(super) id: Option<String>,
    /// Whether it is not drawn yet.
    pub(super) is_pending: bool,
}

/// The name of an avatar as it is stored; 400 if a workspace has no such avatar.
pub(super) async fn find_avatar(
    state: &AppState,
    workspace: &str,
    avatar: &str,
) -> Result<String, ApiError> {
    if is_stock(state, avatar) {
        return Ok(avatar.to_owned());
    }
    let unknown = || ApiError::invalid_field("avatar_key_id", UNKNOWN_AVATAR);
    let id = normalize_id(avatar).ok_or_else(unknown)?;
    let row = state.store.custom_avatar(workspace, &id).await?.ok_or_else(unknown)?;
    if row.status == "FAILED" {
        return Err(ApiError::invalid_field("avatar_key_id", FAILED_AVATAR));
    }
    Ok(id)
}

/// The picture of an avatar in this size and in front of this colour. It is queued if it was never
/// drawn; one that could not be drawn is tried once more.
///
/// # Errors
/// 400 with the field, or 429 if a limit of the workspace is reached.
pub(super) async fn find_or_queue(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    avatar: &str,
    size: VideoSize,
    colour: Option<&str>,
) -> Result<Picture, ApiError> {
    let base = match is_stock(state, avatar) {
        true => None,
        false => variant::find_base(&mut **tx, workspace, avatar).await?,
    };
    let background = colour.map(|colour| Background {
        kind: BackgroundKind::Colour,
        colour: Some(colour.to_owned()),
        ..Background::default()
    });
    let choice = Choice {
        base: avatar,
        background: background.as_ref(),
        framing: Framing::default(),
        size: Some(size),
    };
    let own_size = base.as_ref().map(|base| VideoSize::from_name(&base.size)).unwrap_or_default();
    let Some(choice) = choice.with_own_size(own_size) else {
        let own = match is_stock(state, avatar) {
            true => None,
            // An avatar that is still being drawn is waited for.
            false => Some(avatar.to_owned()),
        };
        let is_pending = match &own {
            Some(id) => variant::is_pending(tx, id).await?,
            None => false,
        };
        return Ok(Picture { id: own, is_pending });
    };
    if let Err(reason) = check_drawable(state, &choice, base.as_ref())? {
        return Err(ApiError::invalid_field(choice.field(), reason));
    }
    let content_key = choice.content_key().unwrap_or_default();
    let found = variant::find(tx, workspace, &content_key).await?;
    let id = found.as_ref().map_or_else(new_id, |set| set.id.clone());
    if video::count_other_variants(tx, workspace, &id).await? >= MAX_IN_USE {
        let reason = format!(
            "is one too many: the videos of a workspace may use {MAX_IN_USE} variants of avatars \
             (background, size); use one of them, or delete the videos of another one"
        );
        return Err(ApiError::invalid_field(choice.field(), reason));
    }
    match found {
        Some(set) if set.is_failed() => {
            custom_avatars::check_queue(tx, workspace).await?;
            variant::retry(tx, &set.id, clock::now()).await?;
        }
        Some(set) => return Ok(Picture { is_pending: !set.is_completed(), id: Some(id) }),
        None => {
            custom_avatars::check_queue(tx, workspace).await?;
            let text = choice.background.map(|own| json!(own.drawn()).to_string());
            let bytes = text.as_ref().map_or(0, String::len);
            quota::check_bytes(state, tx, workspace, bytes).await?;
            let draft = Draft {
                id: &id,
                workspace,
                base_avatar: avatar,
                background: text.as_deref(),
                framing: choice.framing,
                size,
                content_key: &content_key,
                image_hash: None,
                at: clock::now(),
            };
            variant::insert(tx, &draft).await?;
        }
    }
    Ok(Picture { id: Some(id), is_pending: true })
}
