//! Agents that are created from an incomplete description: the short form `/v1/agent/api`, and a
//! template.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tokens::Replaced;
use super::{check_quota, drop_deleted_references, insert, insert_in, parse};
use crate::config::StockAvatar;
use crate::error::{ApiError, OrInternalError as _};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::Json;
use crate::http::responses::{Created, JsonResult};
use crate::http::validate::FieldErrors;
use crate::resources::avatars;
use crate::resources::backgrounds::images::Images;
use crate::resources::variants;
use crate::state::AppState;
use crate::store::agent::{Agent, Template};
use crate::store::json_record::{self, Table};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, Lock};

const FETCH_FAILED: &str = "Failed to fetch template/avatar";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/agent/api", post(create_from_short_form))
        .route("/v1/ext/agentbytemplate", post(create_from_template))
}

fn created_response((id, webhook_secret): (String, String)) -> axum::Json<Created> {
    axum::Json(Created { id, message: "Agent created successfully", webhook_secret })
}

/// At least one avatar, by one of the two properties.
fn any_avatar() -> Value {
    json!([
        {"required": ["avatar_ids"], "properties": {"avatar_ids": {"type": "array", "minItems": 1}}},
        {"required": ["avatar_key_id"], "properties": {"avatar_key_id": {"type": "string", "minLength": 1}}},
    ])
}

/// The required part of an agent. All other properties of an agent may follow.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "ShortAgent", extend("additionalProperties" = true, "anyOf" = any_avatar()))]
pub(crate) struct ShortAgentRequest {
    #[schemars(length(min = 1))]
    name: String,
    #[schemars(length(min = 1))]
    system_prompt: String,
    /// At least one, unless `avatar_key_id` names it.
    avatar_ids: Option<Vec<String>>,
    avatar_key_id: Option<String>,
}

/// A request for an agent from a template.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "AgentByTemplate", extend("anyOf" = any_avatar()))]
pub(crate) struct FromTemplateRequest {
    #[schemars(length(min = 1))]
    pub(crate) template_id: String,
    /// At least one, unless `avatar_key_id` names it.
    pub(crate) avatar_ids: Option<Vec<String>>,
    avatar_key_id: Option<String>,
    pub(crate) email: Option<String>,
    /// Added to the template's system prompt.
    pub(crate) context_override: Option<String>,
}

/// The avatars of a short body: a list, or a single one.
fn avatar_ids(
    list: Option<Vec<String>>,
    single: Option<String>,
    errors: &FieldErrors,
) -> Vec<String> {
    let is_list_given = list.is_some();
    let ids = match list {
        Some(ids) if !ids.is_empty() => ids,
        _ => single.into_iter().filter(|id| !id.is_empty()).collect(),
    };
    if ids.is_empty() && is_list_given {
        errors.add("avatar_ids", "must contain at least one avatar");
    } else if ids.is_empty() && !errors.contains("avatar_") {
        errors.add("avatar_key_id", "is required");
    }
    ids
}

/// The complete body of an agent in short form.
pub(crate) fn expand_short_form(body: Value, available: &[StockAvatar]) -> Result<Value, ApiError> {
    let errors = FieldErrors::default();
    let mut full_body = body.as_object().cloned().unwrap_or_default();
    let short: ShortAgentRequest = body::read(body, &errors)?;
    full_body.insert("agent_name".into(), short.name.into());
    full_body.insert("agent_system_prompt".into(), short.system_prompt.into());
    let ids = avatar_ids(short.avatar_ids, short.avatar_key_id, &errors);
    for (i, id) in ids.iter().enumerate() {
        if !available.iter().any(|avatar| avatar.avatar_key_id == *id) {
            errors.add(format!("avatar_ids[{i}]"), "is not an existing avatar");
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
) -> JsonResult<Created> {
    let available_avatars = avatars::list_available(&state, &caller.workspace).await?;
    let full_body = expand_short_form(body, &available_avatars)?;
    Ok(created_response(insert(&state, &caller.workspace, full_body).await?))
}

/// Reads a request; its avatars are in `avatar_ids`.
pub(crate) fn parse_from_template(body: Value) -> Result<FromTemplateRequest, ApiError> {
    let errors = FieldErrors::default();
    let mut request: FromTemplateRequest = body::read(body, &errors)?;
    let ids = avatar_ids(request.avatar_ids.take(), request.avatar_key_id.take(), &errors);
    request.avatar_ids = Some(ids);
    errors.into_result(request)
}

async fn create_from_template(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> JsonResult<Created> {
    let request = parse_from_template(body)?;
    let unknown_id = || ApiError::MistakenId(FETCH_FAILED);
    let id = store::normalize_id(&request.template_id).ok_or_else(unknown_id)?;
    let available_avatars =
        avatars::list_available(&state, &caller.workspace).await.or_internal_error(FETCH_FAILED)?;
    let avatar_ids = request.avatar_ids.as_deref().unwrap_or_default();
    if !avatar_ids.iter().all(|id| available_avatars.iter().any(|a| a.avatar_key_id == *id)) {
        return Err(unknown_id());
    }
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(FETCH_FAILED)?;
    let row = json_record::find_in(&mut tx, Table::Template, &caller.workspace, &id)
        .await
        .or_internal_error(FETCH_FAILED)?;
    let row = row.ok_or_else(unknown_id)?;
    let mut template: Template =
        json_record::parse_document(&row.document).or_internal_error(FETCH_FAILED)?;
    drop_deleted_references(&mut tx, &caller.workspace, &mut template.settings)
        .await
        .or_internal_error(FETCH_FAILED)?;
    let secrets: AgentSecrets =
        secrets::open(&state.vault, &row.id, &row.secrets).or_internal_error(FETCH_FAILED)?;
    let mut images = Images::default();
    images.add_stored(&secrets);
    let (agent, secrets) = agent_from_template(&available_avatars, template, secrets, &request);
    let body = serde_json::to_value(&agent).unwrap_or_default();
    let replaced = Replaced { avatars: &agent.settings.avatars, secrets: &secrets };
    let parsed =
        parse::parse::<Agent>(body, &available_avatars, Some(replaced)).map_err(|refused| {
            ApiError::Internal(
                FETCH_FAILED,
                format!("the stored template is not a valid agent: {refused:?}"),
            )
        })?;
    check_quota(&state, &mut tx, &caller.workspace, &parsed.document).await?;
    let has_variant = variants::has_variant(&parsed.document.settings);
    let created =
        insert_in(&state, &mut tx, &caller.workspace, parsed, &images).await.map_err(|error| {
            match error {
                ApiError::Internal(_, cause) => ApiError::Internal(FETCH_FAILED, cause),
                // An avatar may not fit the template's background.
                refused => refused,
            }
        })?;
    tx.commit().await.or_internal_error(FETCH_FAILED)?;
    if has_variant {
        state.bake_queued.notify_one();
    }
    Ok(created_response(created))
}

/// Builds an agent from a template, with its secrets. The n-th avatar gets the settings of the
/// template's n-th avatar, or of its first one if there are fewer.
fn agent_from_template(
    available_avatars: &[StockAvatar],
    template: Template,
    template_secrets: AgentSecrets,
    request: &FromTemplateRequest,
) -> (Agent, AgentSecrets) {
    let Template { template_name, template_system_prompt: mut prompt, mut settings } = template;
    let context = request.context_override.as_deref().unwrap_or_default().trim();
    if !context.is_empty() {
        prompt.push_str("\n\n");
        prompt.push_str(context);
    }
    let template_avatars = std::mem::take(&mut settings.avatars);
    let mut secrets = AgentSecrets { webhook: secrets::new_webhook_secret(), avatars: Vec::new() };
    for (i, id) in request.avatar_ids.iter().flatten().enumerate() {
        let source = if i < template_avatars.len() { i } else { 0 };
        let mut avatar = template_avatars.get(source).cloned().unwrap_or_default();
        // A name that is only the default name of the template's avatar does not fit another one.
        let template_avatar = available_avatars
            .iter()
            .find(|known| avatar.avatar_key_id.as_ref() == Some(&known.avatar_key_id));
        avatar
            .persona_name
            .take_if(|name| template_avatar.is_some_and(|known| known.avatar_name == *name));
        avatar.avatar_key_id = Some(id.clone());
        settings.avatars.push(avatar);
        secrets.avatars.push(template_secrets.avatars.get(source).cloned().unwrap_or_default());
    }
    if let Some(email) = &request.email {
        settings.email = Some(email.clone());
    }
    (Agent { agent_name: template_name, agent_system_prompt: prompt, settings }, secrets)
}
