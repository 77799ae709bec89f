//! Backgrounds of avatars: what an agent's avatar stands in front of. A background is drawn once
//! for each avatar and content, by the jobs of custom avatars, when an agent is saved. Until it is
//! finished, calls show the previous one of the agent.

pub(crate) mod fields;
pub(crate) mod images;

use std::collections::HashMap;

use models::face::avatar_spec;
use models::face::background::Background as DrawnBackground;
use models::face::photo_source::PhotoSource;
use serde_json::json;

use self::images::Images;
use crate::clock;
use crate::error::ApiError;
use crate::http::quota;
use crate::resources::custom_avatars;
use crate::state::AppState;
use crate::store::agent::{AgentSettings, Avatar};
use crate::store::background::Background;
use crate::store::background_set::{self as table, AgentBackground, Draft, Set, ShownBackground};
use crate::store::conversation::Row;
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, Transaction, new_id};

/// Maximum number of backgrounds that the agents of a workspace may want at a time.
const MAX_IN_USE: i64 = 20;

const NO_CHARACTER: &str = "cannot change for this avatar, because it was not drawn from a \
    character: choose another avatar";
const PHOTO_NOT_STORED: &str = "cannot change for this avatar, because its photo was not kept \
    (keep_source): create the avatar again";
const NO_MASK: &str = "cannot change for this avatar, because the network that finds the person on \
    the photo was not installed: run `make setup` on the server and create the avatar again";
const NO_AVATAR: &str = "cannot change, because the avatar was deleted: choose another avatar";
const UNKNOWN_IMAGE: &str =
    "is not a picture that an agent of this workspace uses: upload it as a data URI";

const WARNING_DRAWING: &str =
    "The new background is being drawn; until then, calls show the previous one.";
const WARNING_DRAWING_FIRST: &str =
    "The background is being drawn; until then, calls show the avatar's own background.";
const WARNING_FAILED: &str = "The new background could not be drawn, so calls show the previous \
    one: save the agent again to try once more.";
const WARNING_FAILED_FIRST: &str = "The background could not be drawn, so calls show the avatar's \
    own background: save the agent again to try once more.";
const WARNING_GONE: &str = "The background is not shown, because what it was drawn from was \
    deleted: choose another avatar or background.";

/// The background of an avatar if it is not the avatar's own.
fn replaced(avatar: &Avatar) -> Option<(&str, &Background)> {
    let background = avatar.background.as_ref().filter(|background| !background.is_own())?;
    Some((avatar.avatar_key_id.as_deref()?, background))
}

/// Whether the background of an avatar can change; otherwise why not.
async fn check_replaceable(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    avatar: &str,
) -> store::Result<Result<(), &'static str>> {
    if state.stock_avatars.iter().any(|stock| stock.avatar_key_id == avatar) {
        return Ok(avatar_spec::find(avatar).map(|_| ()).ok_or(NO_CHARACTER));
    }
    let Some(base) = table::find_base(&mut **tx, workspace, avatar).await? else {
        return Ok(Err(NO_AVATAR));
    };
    if base.character.is_some() {
        return Ok(Ok(()));
    }
    let Some(sealed) = base.source.filter(|_| base.keep_source == 1) else {
        return Ok(Err(PHOTO_NOT_STORED));
    };
    let source: PhotoSource = secrets::open(&state.vault, avatar, &sealed)?;
    Ok(if source.has_mask() { Ok(()) } else { Err(NO_MASK) })
}

/// An agent that is saved.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a> {
    pub(crate) workspace: &'a str,
    pub(crate) id: &'a str,
    pub(crate) settings: &'a AgentSettings,
    /// The avatars that it had before. What does not change is not checked again.
    pub(crate) before: &'a [Avatar],
}

/// Checks the backgrounds of an agent's avatars, and queues the drawing of the one that its calls
/// show. Pictures that are not drawn move to `secrets`. Returns the row for [`assign`].
///
/// # Errors
/// 400 with the field, or 429 if a limit of the workspace is reached.
pub(crate) async fn prepare(
    state: &AppState,
    tx: &mut Transaction,
    agent: Saved<'_>,
    secrets: &mut AgentSecrets,
    images: &Images,
) -> Result<Option<Set>, ApiError> {
    let mut wanted = None;
    for (i, avatar) in agent.settings.avatars.iter().enumerate() {
        let Some((base, background)) = replaced(avatar) else { continue };
        let path = format!("avatars[{i}].background");
        let is_new = agent.before.get(i).and_then(replaced) != Some((base, background));
        if is_new && let Err(reason) = check_replaceable(state, tx, agent.workspace, base).await? {
            return Err(ApiError::invalid_field(path, reason));
        }
        let mut image = None;
        if let Some(hash) = background.image_hash().filter(|_| is_new || i > 0) {
            image = images.find(state, tx, agent.workspace, hash).await?;
            if is_new && image.is_none() {
                return Err(ApiError::invalid_field(format!("{path}.image"), UNKNOWN_IMAGE));
            }
        }
        if i == 0 {
            let request = Wanted { base, background, image, is_new };
            wanted = find_or_queue(state, tx, agent, request).await?;
        } else if let Some(secrets) = secrets.avatars.get_mut(i) {
            secrets.background_image = image;
        }
    }
    Ok(wanted)
}

/// The background that an agent's calls show.
struct Wanted<'a> {
    base: &'a str,
    background: &'a Background,
    image: Option<String>,
    is_new: bool,
}

/// The row of a background. It is added if there is none; a failed one is drawn once more.
async fn find_or_queue(
    state: &AppState,
    tx: &mut Transaction,
    agent: Saved<'_>,
    wanted: Wanted<'_>,
) -> Result<Option<Set>, ApiError> {
    let Wanted { base, background, image, is_new } = wanted;
    let (Some(content_key), Some(drawn)) = (background.content_key(base), background.drawn())
    else {
        return Ok(None);
    };
    let found = table::find(tx, agent.workspace, &content_key).await?;
    let id = found.as_ref().map_or_else(new_id, |set| set.id.clone());
    if is_new && table::count_others(tx, agent.workspace, agent.id, &id).await? >= MAX_IN_USE {
        let reason = format!(
            "is one too many: the agents of a workspace may use {MAX_IN_USE} backgrounds; use one \
             of them, or remove one from another agent"
        );
        return Err(ApiError::invalid_field("avatars[0].background", reason));
    }
    match found {
        Some(set) if set.is_failed() => {
            // Without room in the queue, a change of something else must not fail.
            if custom_avatars::check_queue(tx, agent.workspace).await.is_ok() {
                table::retry(tx, &set.id, clock::now()).await?;
            }
            Ok(Some(set))
        }
        Some(set) => Ok(Some(set)),
        // What it was drawn from was deleted.
        None if !is_new => Ok(None),
        None => {
            custom_avatars::check_queue(tx, agent.workspace).await?;
            let text = match image {
                Some(image) => secrets::seal(&state.vault, &id, &DrawnBackground::Image { image }),
                None => json!(drawn).to_string(),
            };
            quota::check_bytes(state, tx, agent.workspace, text.len()).await?;
            let draft = Draft {
                id: &id,
                workspace: agent.workspace,
                base_avatar: base,
                background: &text,
                content_key: &content_key,
                image_hash: background.image_hash(),
                at: clock::now(),
            };
            table::insert(tx, &draft).await?;
            Ok(table::find(tx, agent.workspace, &content_key).await?)
        }
    }
}

/// Lets the stored agent `agent` refer to the row of its background. Its calls show the previous one
/// until that one is finished. Rows without an agent are deleted.
pub(crate) async fn assign(
    tx: &mut Transaction,
    workspace: &str,
    agent: &str,
    wanted: Option<&Set>,
) -> store::Result<()> {
    let old: Vec<Set> = table::of_agent(tx, agent).await?.into_iter().flatten().collect();
    if old.is_empty() && wanted.is_none() {
        return Ok(());
    }
    let shown = wanted.filter(|wanted| !wanted.is_completed()).and_then(|wanted| {
        old.iter().find(|old| old.is_completed() && old.base_avatar == wanted.base_avatar)
    });
    let id_of = |set: Option<&Set>| set.map(|set| set.id.clone());
    let (wanted, shown) = (id_of(wanted), id_of(shown));
    table::assign(tx, agent, wanted.as_deref(), shown.as_deref()).await?;
    if old.iter().any(|old| ![&wanted, &shown].contains(&&Some(old.id.clone()))) {
        table::delete_unused(tx, workspace).await?;
    }
    Ok(())
}

/// Whether the calls of an agent show another background than that of its avatar.
pub(crate) fn is_replaced(settings: &AgentSettings) -> bool {
    settings.avatars.first().and_then(replaced).is_some()
}

/// Keeps the pictures of a template's backgrounds in its secrets. Nothing is drawn for a template.
///
/// # Errors
/// 400 with the field of an unknown picture.
pub(crate) async fn keep_images(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    settings: &AgentSettings,
    secrets: &mut AgentSecrets,
    images: &Images,
) -> Result<(), ApiError> {
    for (i, avatar) in settings.avatars.iter().enumerate() {
        let Some(hash) = avatar.background.as_ref().and_then(Background::image_hash) else {
            continue;
        };
        let image = images.find(state, tx, workspace, hash).await?.ok_or_else(|| {
            ApiError::invalid_field(format!("avatars[{i}].background.image"), UNKNOWN_IMAGE)
        })?;
        if let Some(secrets) = secrets.avatars.get_mut(i) {
            secrets.background_image = Some(image);
        }
    }
    Ok(())
}

/// By agent: what its clients should know about its background. `agents`: ids and settings.
pub(crate) async fn warnings<'a>(
    state: &AppState,
    workspace: &str,
    agents: impl Iterator<Item = (&'a str, &'a AgentSettings)>,
) -> store::Result<HashMap<String, &'static str>> {
    let ids: Vec<String> =
        agents.filter(|(_, settings)| is_replaced(settings)).map(|(id, _)| id.to_owned()).collect();
    let rows = state.store.agent_backgrounds(workspace, &ids).await?;
    let rows: HashMap<_, _> = rows.iter().map(|row| (row.agent.as_str(), row)).collect();
    let warning = |row: Option<&&AgentBackground>| {
        let Some(row) = row else { return Some(WARNING_GONE) };
        match (row.status.as_str(), &row.shown) {
            ("COMPLETED", _) => None,
            ("FAILED", Some(_)) => Some(WARNING_FAILED),
            ("FAILED", None) => Some(WARNING_FAILED_FIRST),
            (_, Some(_)) => Some(WARNING_DRAWING),
            (_, None) => Some(WARNING_DRAWING_FIRST),
        }
    };
    let found = ids.iter().filter_map(|id| Some((id.clone(), warning(rows.get(id.as_str()))?)));
    Ok(found.collect())
}

/// What the calls of a conversation show instead of their avatar; `None`: the avatar itself.
/// `avatar` is that of the agent when the conversation was created.
pub(crate) async fn find_shown(
    state: &AppState,
    row: &Row,
    avatar: &Avatar,
) -> store::Result<Option<ShownBackground>> {
    let key = replaced(avatar).and_then(|(base, background)| background.content_key(base));
    match key {
        None => Ok(None),
        Some(key) => {
            state.store.shown_background(&row.workspace, &row.agent, &row.avatar_id, &key).await
        }
    }
}
