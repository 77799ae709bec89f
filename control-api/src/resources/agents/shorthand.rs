//! Agents that are created from an incomplete description: the short form `/v1/agent/api`, and a
//! template.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use serde_json::{Value, json};

use super::{check_quota, drop_deleted_references, insert, insert_in, parse};
use crate::config::StockAvatar;
use crate::error::{ApiError, OrInternalError as _};
use crate::http::auth::ApiCaller;
use crate::http::extract::Json;
use crate::http::validate::{FieldErrors, Fields};
use crate::resources::avatars;
use crate::state::AppState;
use crate::store;
use crate::store::agent::{Agent, Template};
use crate::store::json_record::{self, Table};
use crate::store::secrets::{self, AgentSecrets};

type JsonResult = Result<axum::Json<Value>, ApiError>;

const FETCH_FAILED: &str = "Failed to fetch template/avatar";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/agent/api", post(create_from_short_form))
        .route("/v1/ext/agentbytemplate", post(create_from_template))
}

fn created_response((id, webhook): (String, String)) -> axum::Json<Value> {
    axum::Json(json!({"id": id, "message": "Agent created successfully", "webhook_secret": webhook}))
}

/// The avatar ids in a short body: a list, or a single one.
fn avatar_ids(fields: &Fields<'_>) -> Vec<String> {
    let single = fields.text("avatar_key_id").filter(|id| !id.is_empty());
    let ids = match fields.string_list("avatar_ids") {
        Some(ids) if !ids.is_empty() => ids,
        _ => single.into_iter().collect(),
    };
    if ids.is_empty() {
        let (field, reason) = match fields.raw("avatar_ids") {
            Some(Value::Array(_)) => ("avatar_ids", "must hold at least one avatar"),
            // An invalid value was reported above.
            Some(value) if !value.is_null() => return ids,
            _ => ("avatar_key_id", "is required"),
        };
        fields.add_error(field, reason);
    }
    ids
}

/// The complete body of an agent in short form.
pub(crate) fn expand_short_form(body: Value, available: &[StockAvatar]) -> Result<Value, ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let mut full_body = fields.to_map();
    full_body.insert("agent_name".into(), fields.required("name").into());
    full_body.insert("agent_system_prompt".into(), fields.required("system_prompt").into());
    let ids = avatar_ids(&fields);
    for (i, id) in ids.iter().enumerate() {
        if !available.iter().any(|avatar| avatar.avatar_key_id == *id) {
            fields.add_error(&format!("avatar_ids[{i}]"), "names no avatar");
        }
    }
    let avatars: Vec<Value> = ids.iter().map(|id| json!({"avatar_key_id": id})).collect();
    full_body.insert("avatars".into(), avatars.into());
    errors.into_result(Value::Object(full_body))
}

async fn create_from_short_form(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> JsonResult {
    let available_avatars = avatars::list_available(&state, &caller.workspace).await?;
    let full_body = expand_short_form(body, &available_avatars)?;
    Ok(created_response(insert(&state, &caller.workspace, full_body).await?))
}

#[derive(Debug)]
pub(crate) struct NewAgentFromTemplate {
    template: String,
    avatars: Vec<String>,
    email: Option<String>,
    context: String,
}

pub(crate) fn parse_from_template(body: Value) -> Result<NewAgentFromTemplate, ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let request = NewAgentFromTemplate {
        template: fields.required("template_id"),
        avatars: avatar_ids(&fields),
        email: fields.text("email"),
        context: fields.text("context_override").unwrap_or_default(),
    };
    errors.into_result(request)
}

async fn create_from_template(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> JsonResult {
    let request = parse_from_template(body)?;
    let fetch_failed = |what: &str| ApiError::Internal(FETCH_FAILED, format!("no such {what}"));
    let id = store::normalize_id(&request.template).ok_or_else(|| fetch_failed("template"))?;
    let available_avatars =
        avatars::list_available(&state, &caller.workspace).await.or_internal_error(FETCH_FAILED)?;
    if !request.avatars.iter().all(|id| available_avatars.iter().any(|a| a.avatar_key_id == *id)) {
        return Err(fetch_failed("avatar"));
    }
    let mut tx = state.store.begin_write().await.or_internal_error(FETCH_FAILED)?;
    let row = json_record::find_in(&mut tx, Table::Template, &caller.workspace, &id)
        .await
        .or_internal_error(FETCH_FAILED)?;
    let row = row.ok_or_else(|| fetch_failed("template"))?;
    let mut template: Template =
        json_record::parse_document(&row.document).or_internal_error(FETCH_FAILED)?;
    drop_deleted_references(&mut tx, &caller.workspace, &mut template.settings)
        .await
        .or_internal_error(FETCH_FAILED)?;
    let secrets: AgentSecrets =
        secrets::open(&state.vault, &row.id, &row.secrets).or_internal_error(FETCH_FAILED)?;
    let (agent, secrets) = agent_from_template(&available_avatars, template, secrets, &request);
    let body = serde_json::to_value(&agent).unwrap_or_default();
    let parsed = parse::parse::<Agent>(body, &available_avatars, Some(&secrets)).map_err(|refused| {
        ApiError::Internal(FETCH_FAILED, format!("the stored template is not a valid agent: {refused:?}"))
    })?;
    check_quota(&state, &mut tx, &caller.workspace, &parsed.document).await?;
    let created =
        insert_in(&state, &mut tx, &caller.workspace, parsed).await.or_internal_error(FETCH_FAILED)?;
    tx.commit().await.or_internal_error(FETCH_FAILED)?;
    Ok(created_response(created))
}

/// Builds an agent from a template, with its secrets. The n-th avatar gets the settings of the
/// template's n-th avatar, or of its first one if there are fewer.
fn agent_from_template(
    available_avatars: &[StockAvatar],
    template: Template,
    template_secrets: AgentSecrets,
    request: &NewAgentFromTemplate,
) -> (Agent, AgentSecrets) {
    let Template { template_name, template_system_prompt: mut prompt, mut settings } = template;
    if !request.context.trim().is_empty() {
        prompt.push_str("\n\n");
        prompt.push_str(request.context.trim());
    }
    let template_avatars = std::mem::take(&mut settings.avatars);
    let mut secrets = AgentSecrets { webhook: secrets::new_webhook_secret(), avatars: Vec::new() };
    for (i, id) in request.avatars.iter().enumerate() {
        let source = if i < template_avatars.len() { i } else { 0 };
        let mut avatar = template_avatars.get(source).cloned().unwrap_or_default();
        // A name that is only the default name of the template's avatar does not fit another one.
        let template_avatar = available_avatars
            .iter()
            .find(|known| avatar.avatar_key_id.as_ref() == Some(&known.avatar_key_id));
        avatar.persona_name.take_if(|name| template_avatar.is_some_and(|known| known.avatar_name == *name));
        avatar.avatar_key_id = Some(id.clone());
        settings.avatars.push(avatar);
        secrets.avatars.push(template_secrets.avatars.get(source).cloned().unwrap_or_default());
    }
    if let Some(email) = &request.email {
        settings.email = Some(email.clone());
    }
    (Agent { agent_name: template_name, agent_system_prompt: prompt, settings }, secrets)
}
