//! Avatars: the stock avatars, `/v1/ext/avatars`, and lookups of stock and custom avatars for the
//! rest of this plane.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine_api::PoseSetFile;
use serde_json::{Value, json};

use crate::config::StockAvatar;
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery};
use crate::resources::custom_avatars;
use crate::state::AppState;
use crate::store;
use crate::store::custom_avatar::Output;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/avatars", get(list))
}

/// A stock avatar as JSON.
pub(crate) fn to_json(avatar: &StockAvatar) -> Value {
    json!(avatar)
}

async fn list(
    State(state): State<Arc<AppState>>,
    _: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> ListResponse {
    let matches = |avatar: &&StockAvatar| {
        let text = format!("{}\n{}", avatar.avatar_key_id, avatar.avatar_name).to_lowercase();
        page.search.as_ref().is_none_or(|part| text.contains(part))
    };
    ListResponse::page_of(state.stock_avatars.iter().filter(matches).map(to_json).collect(), &page)
}

/// The avatars that agents of a workspace may use: the stock avatars, and the workspace's custom
/// avatars that can be shown. Without their pictures.
pub(crate) async fn list_available(
    state: &AppState,
    workspace: &str,
) -> store::Result<Vec<StockAvatar>> {
    let custom = state.store.showable_custom_avatars(workspace).await?;
    let stock = state
        .stock_avatars
        .iter()
        .map(|a| (a.avatar_key_id.clone(), a.avatar_name.clone(), a.gender.clone()));
    let avatars = stock.chain(custom).map(|(avatar_key_id, avatar_name, gender)| StockAvatar {
        avatar_key_id,
        avatar_name,
        gender,
        ..StockAvatar::default()
    });
    Ok(avatars.collect())
}

/// The avatar with this id, stock or custom, with its picture.
pub(crate) async fn find(
    state: &AppState,
    workspace: &str,
    id: &str,
) -> store::Result<Option<StockAvatar>> {
    if let Some(stock) = state.stock_avatars.iter().find(|a| a.avatar_key_id == id) {
        return Ok(Some(stock.clone()));
    }
    let Some(id) = store::normalize_id(id) else { return Ok(None) };
    let custom = state.store.custom_avatar(workspace, &id).await?;
    Ok(custom.filter(|row| row.output.is_some()).map(|row| {
        let output: Output =
            row.output.and_then(|o| serde_json::from_str(&o).ok()).unwrap_or_default();
        StockAvatar {
            avatar_key_id: row.id,
            avatar_name: row.name,
            gender: row.gender,
            display_picture: output.preview_url,
            ..StockAvatar::default()
        }
    }))
}

/// The built-in voice of an avatar, stock or custom, also of one that is not drawn yet. `None` if
/// there is no such avatar.
pub(crate) async fn voice_of(
    state: &AppState,
    workspace: &str,
    id: &str,
) -> store::Result<Option<String>> {
    if let Some(stock) = state.stock_avatars.iter().find(|a| a.avatar_key_id == id) {
        return Ok(Some(stock.voice.clone()));
    }
    let Some(id) = store::normalize_id(id) else { return Ok(None) };
    let row = state.store.custom_avatar(workspace, &id).await?;
    row.map(|row| custom_avatars::voice_of(&row)).transpose()
}

/// The avatar with the picture of a pose set: `output` is an [`Output`] as JSON.
pub(crate) fn with_picture(avatar: StockAvatar, output: &str) -> StockAvatar {
    match serde_json::from_str::<Output>(output) {
        Ok(output) => StockAvatar { display_picture: output.preview_url, ..avatar },
        Err(_) => avatar,
    }
}

/// The pose set of a custom avatar, or of a variant; the engine has those of stock avatars. `None`
/// if it was deleted. Calls that show it at the same time share the pose set.
pub(crate) async fn load_custom_poses(
    state: &AppState,
    workspace: &str,
    id: &str,
) -> store::Result<Option<PoseSetFile>> {
    let stock = state.stock_avatars.iter().any(|a| a.avatar_key_id == id);
    let Some(id) = store::normalize_id(id).filter(|_| !stock) else { return Ok(None) };
    let Some(rank) = state.store.custom_avatar_rank(workspace, &id).await? else {
        return Ok(None);
    };
    if let Some(pose_set) = state.live_pose_sets.get(&id, rank) {
        return Ok(Some(pose_set));
    }
    let Some((version, percent, poses)) = state.store.custom_avatar_poses(workspace, &id).await?
    else {
        return Ok(None);
    };
    let poses = STANDARD
        .decode(poses)
        .map_err(|e| store::Error::CorruptRow("custom_avatar", e.to_string()))?;
    let pose_set = PoseSetFile {
        data: poses.into(),
        completeness: percent.clamp(0, 100) as u8,
        version: u32::try_from(version).unwrap_or_default(),
    };
    state.live_pose_sets.insert(id, &pose_set);
    Ok(Some(pose_set))
}
