//! Variants of avatars: an agent may choose another background, framing or size than the avatar's
//! own. A variant is drawn once for each avatar and content, by the jobs of custom avatars, when an
//! agent is saved. Until it is finished, calls show the previous one of the agent.

use std::collections::HashMap;

use models::face::avatar_spec;
use models::face::background::Background as DrawnBackground;
use models::face::photo_source::PhotoSource;
use serde_json::json;

use super::backgrounds::images::Images;
use crate::clock;
use crate::config::StockAvatar;
use crate::error::ApiError;
use crate::http::quota;
use crate::resources::{avatars, custom_avatars};
use crate::state::AppState;
use crate::store::agent::{AgentSettings, Avatar};
use crate::store::background::{Background, sha256_hex};
use crate::store::conversation::Row;
use crate::store::framing::{Framing, VideoSize};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::variant::{self as table, AgentVariant, Base, Draft, Set, ShownVariant};
use crate::store::{self, Transaction, new_id};

/// Maximum number of variants that the agents of a workspace may want at a time.
pub(super) const MAX_IN_USE: i64 = 20;

const NO_CHARACTER: &str = "cannot change for this avatar, because it was not drawn from a \
    character: choose another avatar";
const PHOTO_NOT_STORED: &str = "cannot change for this avatar, because its photo was not kept \
    (keep_source): create the avatar again";
const NO_MASK: &str = "cannot change for this avatar, because the network that finds the person on \
    the photo was not installed: run `make setup` on the server and create the avatar again";
const NO_AVATAR: &str = "cannot change, because the avatar was deleted: choose another avatar";
const UNKNOWN_IMAGE: &str =
    "is not a picture that an agent of this workspace uses: upload it as a data URI";

/// What an agent's clients should know about its variant.
struct Warnings {
    drawing: &'static str,
    drawing_first: &'static str,
    failed: &'static str,
    failed_first: &'static str,
    gone: &'static str,
}

/// Only the background is another one.
const BACKGROUND_WARNINGS: Warnings = Warnings {
    drawing: "The new background is being drawn; until then, calls show the previous one.",
    drawing_first: "The background is being drawn; until then, calls show the avatar's own \
        background.",
    failed: "The new background could not be drawn, so calls show the previous one: save the agent \
        again to try once more.",
    failed_first: "The background could not be drawn, so calls show the avatar's own background: \
        save the agent again to try once more.",
    gone: "The background is not shown, because what it was drawn from was deleted: choose another \
        avatar or background.",
};
/// The framing or the size is another one.
const PICTURE_WARNINGS: Warnings = Warnings {
    drawing: "The avatar is being drawn in its new framing and size; until then, calls show it as \
        before.",
    drawing_first: "The avatar is being drawn in its framing and size; until then, calls show it in \
        its own.",
    failed: "The avatar could not be drawn in its new framing and size, so calls show it as before: \
        save the agent again to try once more.",
    failed_first: "The avatar could not be drawn in its framing and size, so calls show it in its \
        own: save the agent again to try once more.",
    gone: "The framing and size are not shown, because what the avatar was drawn from was deleted: \
        choose another avatar.",
};

/// What an agent or a video chooses for an avatar.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Choice<'a> {
    pub(super) base: &'a str,
    /// `None`: the avatar's own.
    pub(super) background: Option<&'a Background>,
    pub(super) framing: Framing,
    /// `None`: the avatar's own.
    pub(super) size: Option<VideoSize>,
}

impl<'a> Choice<'a> {
    /// `None` if the avatar is shown as it is, or if there is no avatar.
    fn of(avatar: &'a Avatar) -> Option<Self> {
        let choice = Self {
            base: avatar.avatar_key_id.as_deref()?,
            background: avatar.background.as_ref().filter(|background| !background.is_own()),
            framing: avatar.framing,
            size: avatar.size,
        };
        choice.is_variant().then_some(choice)
    }

    fn is_variant(&self) -> bool {
        self.background.is_some() || self.framing != Framing::default() || self.size.is_some()
    }

    /// The same for an avatar whose own size is `own`; `None` if it is shown as it is.
    pub(super) fn with_own_size(self, own: VideoSize) -> Option<Self> {
        let choice = Self { size: self.size.filter(|size| *size != own), ..self };
        choice.is_variant().then_some(choice)
    }

    /// Identifies what the avatar looks like: SHA-256 in hexadecimal. `None` if a field of the
    /// background is missing.
    pub(super) fn content_key(&self) -> Option<String> {
        let background = match self.background {
            Some(background) => Some(background.drawn()?),
            None => None,
        };
        // Variants of the release before differ in the background only, and keep their keys.
        let content = match (&background, self.framing, self.size) {
            (Some(background), Framing::Close, None) => {
                serde_json::to_vec(&(self.base, background))
            }
            (_, framing, size) => serde_json::to_vec(&(self.base, &background, framing, size)),
        };
        Some(sha256_hex(&content.ok()?))
    }

    /// The field that makes it a variant.
    pub(super) fn field(&self) -> &'static str {
        if self.background.is_some() {
            "background"
        } else if self.framing == Framing::default() {
            "size"
        } else {
            "framing"
        }
    }

    fn warnings(&self) -> &'static Warnings {
        if self.framing == Framing::default() && self.size.is_none() {
            &BACKGROUND_WARNINGS
        } else {
            &PICTURE_WARNINGS
        }
    }
}

pub(super) fn is_stock(state: &AppState, avatar: &str) -> bool {
    state.stock_avatars.iter().any(|stock| stock.avatar_key_id == avatar)
}

/// The sizes of the custom avatars of these choices; other avatars have the default one.
async fn own_sizes(
    state: &AppState,
    workspace: &str,
    choices: impl Iterator<Item = Choice<'_>>,
) -> store::Result<HashMap<String, VideoSize>> {
    let mut ids: Vec<String> = choices
        .filter(|choice| choice.size.is_some() && !is_stock(state, choice.base))
        .map(|choice| choice.base.to_owned())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let sizes = state.store.custom_avatar_sizes(workspace, &ids).await?;
    Ok(sizes.into_iter().map(|(id, size)| (id, VideoSize::from_name(&size))).collect())
}

/// Whether an avatar can be drawn as chosen; otherwise why not. `base`: the custom avatar.
pub(super) fn check_drawable(
    state: &AppState,
    choice: &Choice<'_>,
    base: Option<&Base>,
) -> store::Result<Result<(), &'static str>> {
    if is_stock(state, choice.base) {
        return Ok(avatar_spec::find(choice.base).map(|_| ()).ok_or(NO_CHARACTER));
    }
    let Some(base) = base else { return Ok(Err(NO_AVATAR)) };
    if base.character.is_some() {
        return Ok(Ok(()));
    }
    let Some(sealed) = base.source.as_ref().filter(|_| base.keep_source == 1) else {
        return Ok(Err(PHOTO_NOT_STORED));
    };
    if choice.background.is_none() {
        return Ok(Ok(()));
    }
    let source: PhotoSource = secrets::open(&state.vault, choice.base, sealed)?;
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

/// Checks what an agent chooses for its avatars, and queues the drawing of the variant that its
/// calls show. Pictures that are not drawn move to `secrets`. Returns the row for [`assign`].
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
        let Some(chosen) = Choice::of(avatar) else { continue };
        let base = match is_stock(state, chosen.base) {
            true => None,
            false => table::find_base(&mut **tx, agent.workspace, chosen.base).await?,
        };
        let own_size = base.as_ref().map(|base| VideoSize::from_name(&base.size));
        let own_size = own_size.unwrap_or_default();
        let Some(choice) = chosen.with_own_size(own_size) else { continue };
        let path = format!("avatars[{i}].{}", choice.field());
        let is_new = agent.before.get(i).and_then(Choice::of) != Some(chosen);
        if is_new && let Err(reason) = check_drawable(state, &choice, base.as_ref())? {
            return Err(ApiError::invalid_field(path, reason));
        }
        let mut image = None;
        let hash = choice.background.and_then(Background::image_hash);
        if let Some(hash) = hash.filter(|_| is_new || i > 0) {
            image = images.find(state, tx, agent.workspace, hash).await?;
            if is_new && image.is_none() {
                return Err(ApiError::invalid_field(format!("{path}.image"), UNKNOWN_IMAGE));
            }
        }
        if i == 0 {
            let size = choice.size.unwrap_or(own_size);
            wanted =
                find_or_queue(state, tx, agent, Wanted { choice, size, image, is_new }).await?;
        } else if let Some(secrets) = secrets.avatars.get_mut(i) {
            secrets.background_image = image;
        }
    }
    Ok(wanted)
}

/// The variant that an agent's calls show.
struct Wanted<'a> {
    choice: Choice<'a>,
    size: VideoSize,
    image: Option<String>,
    is_new: bool,
}

/// The row of a variant. It is added if there is none; a failed one is drawn once more.
async fn find_or_queue(
    state: &AppState,
    tx: &mut Transaction,
    agent: Saved<'_>,
    wanted: Wanted<'_>,
) -> Result<Option<Set>, ApiError> {
    let Wanted { choice, size, image, is_new } = wanted;
    let Some(content_key) = choice.content_key() else { return Ok(None) };
    let found = table::find(tx, agent.workspace, &content_key).await?;
    let id = found.as_ref().map_or_else(new_id, |set| set.id.clone());
    if is_new && table::count_others(tx, agent.workspace, agent.id, &id).await? >= MAX_IN_USE {
        let reason = format!(
            "is one too many: the agents of a workspace may use {MAX_IN_USE} variants of avatars \
             (background, framing, size); use one of them, or remove one from another agent"
        );
        return Err(ApiError::invalid_field(format!("avatars[0].{}", choice.field()), reason));
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
            let text = match (image, choice.background) {
                (Some(image), _) => {
                    Some(secrets::seal(&state.vault, &id, &DrawnBackground::Image { image }))
                }
                (None, background) => background.map(|own| json!(own.drawn()).to_string()),
            };
            let bytes = text.as_ref().map_or(0, String::len);
            quota::check_bytes(state, tx, agent.workspace, bytes).await?;
            let draft = Draft {
                id: &id,
                workspace: agent.workspace,
                base_avatar: choice.base,
                background: text.as_deref(),
                framing: choice.framing,
                size,
                content_key: &content_key,
                image_hash: choice.background.and_then(Background::image_hash),
                at: clock::now(),
            };
            table::insert(tx, &draft).await?;
            Ok(table::find(tx, agent.workspace, &content_key).await?)
        }
    }
}

/// Lets the stored agent `agent` refer to the row of its variant. Its calls show the previous one
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

/// Whether the calls of an agent may show a variant of its avatar.
pub(crate) fn has_variant(settings: &AgentSettings) -> bool {
    settings.avatars.first().and_then(Choice::of).is_some()
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

/// By agent: what its clients should know about its variant. `agents`: ids and settings.
pub(crate) async fn warnings<'a>(
    state: &AppState,
    workspace: &str,
    agents: impl Iterator<Item = (&'a str, &'a AgentSettings)>,
) -> store::Result<HashMap<String, &'static str>> {
    let chosen: Vec<(&str, Choice<'_>)> = agents
        .filter_map(|(id, settings)| Some((id, Choice::of(settings.avatars.first()?)?)))
        .collect();
    let sizes = own_sizes(state, workspace, chosen.iter().map(|(_, choice)| *choice)).await?;
    let chosen = chosen.into_iter().filter_map(|(id, choice)| {
        let own_size = sizes.get(choice.base).copied().unwrap_or_default();
        Some((id.to_owned(), choice.with_own_size(own_size)?.warnings()))
    });
    let (ids, texts): (Vec<String>, Vec<&'static Warnings>) = chosen.unzip();
    let rows = state.store.agent_variants(workspace, &ids).await?;
    let rows: HashMap<_, _> = rows.iter().map(|row| (row.agent.as_str(), row)).collect();
    let warning = |row: Option<&&AgentVariant>, texts: &Warnings| {
        let Some(row) = row else { return Some(texts.gone) };
        match (row.status.as_str(), &row.shown) {
            ("COMPLETED", _) => None,
            ("FAILED", Some(_)) => Some(texts.failed),
            ("FAILED", None) => Some(texts.failed_first),
            (_, Some(_)) => Some(texts.drawing),
            (_, None) => Some(texts.drawing_first),
        }
    };
    let found = ids
        .iter()
        .zip(texts)
        .filter_map(|(id, texts)| Some((id.clone(), warning(rows.get(id.as_str()), texts)?)));
    Ok(found.collect())
}

/// What the calls of a conversation show instead of their avatar; `None`: the avatar itself.
/// `avatar` is that of the agent when the conversation was created.
pub(crate) async fn find_shown(
    state: &AppState,
    row: &Row,
    avatar: &Avatar,
) -> store::Result<Option<ShownVariant>> {
    find_variant(state, &row.workspace, &row.agent, &row.avatar_id, avatar).await
}

async fn find_variant(
    state: &AppState,
    workspace: &str,
    agent: &str,
    avatar_id: &str,
    avatar: &Avatar,
) -> store::Result<Option<ShownVariant>> {
    let Some(chosen) = Choice::of(avatar) else { return Ok(None) };
    let sizes = own_sizes(state, workspace, [chosen].into_iter()).await?;
    let own_size = sizes.get(chosen.base).copied().unwrap_or_default();
    match chosen.with_own_size(own_size).and_then(|choice| choice.content_key()) {
        None => Ok(None),
        Some(key) => state.store.shown_variant(workspace, agent, avatar_id, &key).await,
    }
}

/// The avatar of an agent, with the picture of what its calls show.
pub(crate) async fn find_shown_avatar(
    state: &AppState,
    workspace: &str,
    agent: &str,
    avatar_id: &str,
    avatar: &Avatar,
) -> store::Result<Option<StockAvatar>> {
    let Some(found) = avatars::find(state, workspace, avatar_id).await? else { return Ok(None) };
    let shown = find_variant(state, workspace, agent, avatar_id, avatar).await?;
    Ok(Some(match shown {
        Some(shown) => avatars::with_picture(found, &shown.output),
        None => found,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn key(avatar: Value) -> Option<String> {
        let avatar: Avatar = serde_json::from_value(avatar).unwrap();
        Choice::of(&avatar)?.with_own_size(VideoSize::Square)?.content_key()
    }

    fn in_front_of(background: Value) -> Option<String> {
        key(json!({"avatar_key_id": "mei", "background": background}))
    }

    #[test]
    fn the_key_depends_on_the_content_only() {
        assert_eq!(in_front_of(json!({"type": "keep"})), None);
        let own = json!({"avatar_key_id": "mei", "framing": "close", "size": "512x512"});
        assert_eq!(key(own), None);
        let gradient = |angle: Value| {
            let (from, to) = ("#102030", "#ffffff");
            in_front_of(json!({"type": "gradient", "from": from, "to": to, "angle": angle}))
        };
        assert_eq!(gradient(json!(90)), gradient(json!(90.0)));
        let hash = "0".repeat(64);
        let colour = json!({"type": "colour", "colour": "#102030"});
        let all = [
            gradient(json!(90)),
            gradient(json!(91)),
            in_front_of(colour.clone()),
            in_front_of(json!({"type": "blur", "strength": 0.5})),
            in_front_of(json!({"type": "image", "image": format!("sha256:{hash}")})),
            key(json!({"avatar_key_id": "leo", "background": colour})),
            key(json!({"avatar_key_id": "mei", "background": colour, "framing": "bust"})),
            key(json!({"avatar_key_id": "mei", "background": colour, "size": "720x1280"})),
            key(json!({"avatar_key_id": "mei", "framing": "bust"})),
            key(json!({"avatar_key_id": "leo", "framing": "bust"})),
            key(json!({"avatar_key_id": "mei", "size": "720x1280"})),
            key(json!({"avatar_key_id": "mei", "size": "1280x720"})),
        ];
        for (i, key) in all.iter().enumerate() {
            assert_eq!(key.as_ref().unwrap().len(), 64);
            assert!(!all[..i].contains(key), "{i}");
        }
        let same = json!({"avatar_key_id": "mei", "background": colour, "size": "512x512"});
        assert_eq!(key(same), all[2]);
    }

    #[test]
    fn the_keys_of_the_release_before_stay() {
        let of_release = json!(["mei", {"type": "blur", "strength": 0.5}]).to_string();
        let found = in_front_of(json!({"type": "blur", "strength": 0.5}));
        assert_eq!(found, Some(sha256_hex(of_release.as_bytes())));
    }
}
