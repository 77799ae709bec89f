//! Agents that are created from an incomplete description: the short form `/v1/agent/api`, and a
//! template.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use serde_json::{Map, Value, json};

use super::{forget_deleted, insert, parse, room, write};
use crate::config::StockAvatar;
use crate::error::{ApiError, OrFail as _};
use crate::http::auth::Caller;
use crate::http::extract::Json;
use crate::http::validate::{Faults, Fields};
use crate::resources::avatars;
use crate::state::AppState;
use crate::store;
use crate::store::document::{self, Table};
use crate::store::secrets::{self, Secrets};

type Answer = Result<axum::Json<Value>, ApiError>;

const FETCH: &str = "Failed to fetch template/avatar";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/agent/api", post(short)).route("/v1/ext/agentbytemplate", post(by_template))
}

fn created((id, webhook): (String, String)) -> axum::Json<Value> {
    axum::Json(json!({"id": id, "message": "Agent created successfully", "webhook_secret": webhook}))
}

/// The avatar ids in a short body: a list, or a single one.
fn avatar_ids(fields: &Fields<'_>) -> Vec<String> {
    let single = fields.text("avatar_key_id").filter(|id| !id.is_empty());
    let ids = match fields.texts("avatar_ids") {
        Some(ids) if !ids.is_empty() => ids,
        _ => single.into_iter().collect(),
    };
    if ids.is_empty() {
        let (given, reason) = match fields.raw("avatar_ids") {
            Some(Value::Array(_)) => ("avatar_ids", "must hold at least one avatar"),
            // An invalid value was reported above.
            Some(value) if !value.is_null() => return ids,
            _ => ("avatar_key_id", "is required"),
        };
        fields.fault(given, reason);
    }
    ids
}

async fn short(State(shared): State<Arc<AppState>>, caller: Caller, Json(body): Json) -> Answer {
    let faces = avatars::known(&shared, &caller.workspace).await?;
    let whole = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let mut whole = fields.all();
        whole.insert("agent_name".into(), fields.required("name").into());
        whole.insert("agent_system_prompt".into(), fields.required("system_prompt").into());
        let ids = avatar_ids(&fields);
        for (i, id) in ids.iter().enumerate() {
            if !faces.iter().any(|avatar| avatar.avatar_key_id == *id) {
                fields.fault(&format!("avatar_ids[{i}]"), "names no avatar");
            }
        }
        let avatars: Vec<Value> = ids.iter().map(|id| json!({"avatar_key_id": id})).collect();
        whole.insert("avatars".into(), avatars.into());
        faults.unless(Value::Object(whole))?
    };
    Ok(created(insert(&shared, &caller.workspace, whole).await?))
}

struct Wish {
    template: String,
    avatars: Vec<String>,
    email: Option<String>,
    context: String,
}

async fn by_template(State(shared): State<Arc<AppState>>, caller: Caller, Json(body): Json) -> Answer {
    let wish = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let wish = Wish {
            template: fields.required("template_id"),
            avatars: avatar_ids(&fields),
            email: fields.text("email"),
            context: fields.text("context_override").unwrap_or_default(),
        };
        faults.unless(wish)?
    };
    let absent = |what: &str| ApiError::Failed(FETCH, format!("no such {what}"));
    let id = store::id(&wish.template).ok_or_else(|| absent("template"))?;
    let faces = avatars::known(&shared, &caller.workspace).await.or_fail(FETCH)?;
    if !wish.avatars.iter().all(|id| faces.iter().any(|a| a.avatar_key_id == *id)) {
        return Err(absent("avatar"));
    }
    let mut tx = shared.store.write().await.or_fail(FETCH)?;
    let row = document::find_in(&mut tx, Table::Template, &caller.workspace, &id).await.or_fail(FETCH)?;
    let row = row.ok_or_else(|| absent("template"))?;
    let mut template = document::parsed(&row.document).or_fail(FETCH)?;
    forget_deleted(&mut tx, &caller.workspace, &mut template).await.or_fail(FETCH)?;
    let hidden: Secrets = secrets::open(&shared.vault, &row.id, &row.secrets).or_fail(FETCH)?;
    let (body, hidden) = agent_of(&faces, template, hidden, &wish);
    let parsed = parse::parse(body, &faces, Some(&hidden)).map_err(|refused| {
        ApiError::Failed(FETCH, format!("the stored template is not a valid agent: {refused:?}"))
    })?;
    room(&shared, &mut tx, &caller.workspace, &parsed.document).await?;
    let made = write(&shared, &mut tx, &caller.workspace, parsed).await.or_fail(FETCH)?;
    tx.commit().await.or_fail(FETCH)?;
    Ok(created(made))
}

/// Builds an agent from a template, with its secrets. The n-th avatar gets the settings of the
/// template's n-th avatar, or of its first one if there are fewer.
fn agent_of(faces: &[StockAvatar], template: Value, hidden: Secrets, wish: &Wish) -> (Value, Secrets) {
    let Value::Object(mut agent) = template else { return (template, hidden) };
    let mut secrets = Secrets { webhook: secrets::fresh_webhook(), avatars: Vec::new() };
    let name = agent.shift_remove("template_name").unwrap_or_default();
    let prompt = agent.shift_remove("template_system_prompt").unwrap_or_default();
    let mut prompt = prompt.as_str().unwrap_or_default().to_owned();
    if !wish.context.trim().is_empty() {
        prompt.push_str("\n\n");
        prompt.push_str(wish.context.trim());
    }
    let lenders = agent["avatars"].as_array().cloned().unwrap_or_default();
    let mut avatars = Vec::new();
    for (i, id) in wish.avatars.iter().enumerate() {
        let lender = if i < lenders.len() { i } else { 0 };
        let mut avatar = lenders.get(lender).and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        // A name that is only the default name of the template's avatar does not fit another one.
        let own = faces.iter().find(|a| avatar.get("avatar_key_id") == Some(&json!(a.avatar_key_id)));
        if own.is_some_and(|own| avatar.get("persona_name") == Some(&json!(own.avatar_name))) {
            avatar.shift_remove("persona_name");
        }
        avatar.insert("avatar_key_id".into(), id.clone().into());
        avatars.push(Value::Object(avatar));
        secrets.avatars.push(hidden.avatars.get(lender).cloned().unwrap_or_default());
    }
    agent.insert("avatars".into(), avatars.into());
    agent.insert("agent_name".into(), name);
    agent.insert("agent_system_prompt".into(), prompt.into());
    if let Some(email) = &wish.email {
        agent.insert("email".into(), email.clone().into());
    }
    (Value::Object(agent), secrets)
}
