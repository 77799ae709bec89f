//! Providers that agents may select for STT, LLM and TTS: `/v1/ext/providers`, and the voices of
//! one: `/v1/ext/provider/{provider}/voices`. Trials of them are in
//! [`provider_trials`](super::provider_trials).

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::get;
use engine_api::TtsChoice;
use models::llm::local_servers;
use models::registry::{self, Kind, Provider, Registry, VoicesError};
use models::tts::{ListedVoice, VoiceQuery};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery, Path};
use crate::resources::model_choices::Account;
use crate::state::AppState;
use crate::state::api_key::hash_key;
use crate::state::voice_cache::VoiceAccount;

/// Maximum size of a language tag in bytes.
const MAX_LANGUAGE_BYTES: usize = 35;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/providers", get(list))
        .route("/v1/ext/providers/local", get(local))
        .route("/v1/ext/provider/{provider}/voices", get(voices))
}

/// A voice of a provider.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Voice")]
pub(crate) struct VoiceItem<'a> {
    /// The `voice_id` of an agent.
    voice_id: &'a str,
    name: &'a str,
    /// BCP 47 tag; null if the voice speaks several languages, or if the vendor does not say.
    language: Option<&'a str>,
    /// As the vendor says it, such as `female`.
    gender: Option<&'a str>,
    /// URL of a recording at the vendor.
    preview_url: Option<&'a str>,
}

impl<'a> VoiceItem<'a> {
    fn new(voice: &'a ListedVoice) -> Self {
        Self {
            voice_id: &voice.id,
            name: &voice.name,
            language: voice.language.as_deref(),
            gender: voice.gender.as_deref(),
            preview_url: voice.preview.as_deref(),
        }
    }
}

/// An LLM server on the server's own machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LocalServer")]
pub(crate) struct LocalServerItem<'a> {
    /// Name of the usual program on its port.
    name: &'a str,
    /// The provider that an agent names to use it; `custom` needs the URL, too.
    provider: &'a str,
    url: &'a str,
    /// Names of its models.
    models: &'a [String],
}

/// The models of all providers.
///
/// # Errors
/// 503 on a server without them.
pub(super) fn registry_of(state: &AppState) -> Result<&Arc<Registry>, ApiError> {
    let missing = || ApiError::NoCapacity("this server has no models".into());
    state.config.registry.as_ref().ok_or_else(missing)
}

/// In a path: the provider of agents that name none.
const DEFAULT_PROVIDER: &str = "default";

/// The choice of a TTS with the account of the caller's workspace.
///
/// # Errors
/// 404 if there is no such TTS provider.
pub(super) async fn tts_of_workspace(
    state: &AppState,
    caller: &ApiCaller,
    mut choice: TtsChoice,
) -> Result<TtsChoice, ApiError> {
    let registry = registry_of(state)?;
    if choice.provider == DEFAULT_PROVIDER {
        choice.provider = registry.first_provider(Kind::Tts, "", &caller.workspace);
    }
    if !registry.knows(Kind::Tts, &choice.provider) {
        return Err(ApiError::NotFound(Resource::Provider));
    }
    let credentials = state.store.credentials(&state.vault, &caller.workspace).await?;
    let account = Account {
        workspace: &caller.workspace,
        credentials: &credentials,
        registry: Some(registry),
    };
    Ok(account.apply(choice))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    let rows = state.store.credential_rows(&caller.workspace).await?;
    let credentials: Vec<String> = rows.into_iter().map(|row| row.name).collect();
    let all = match &state.config.registry {
        Some(registry) => registry.providers(&caller.workspace, &credentials),
        None => registry::providers(&registry::Config::default(), "", &credentials),
    };
    let matches = |provider: &&Provider| {
        let text = format!("{}\n{}\n{}", provider.display_name, provider.provider, provider.model);
        page.search.as_ref().is_none_or(|part| text.to_lowercase().contains(part))
            && page.kind.as_ref().is_none_or(|kind| provider.provider_type == kind)
    };
    Ok(ListResponse::page_of(all.iter().filter(matches).map(|p| json!(p)).collect(), &page))
}

/// The LLM servers of this machine, for the operator only: the list tells what listens on it.
async fn local(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> ListResponse {
    let is_operator = *caller.workspace == *state.default_workspace;
    if !is_operator || !state.config.allows_private_targets() {
        return ListResponse(Vec::new(), 0);
    }
    let own = state.config.listen.port();
    let ports: Vec<_> =
        state.config.local_llm_ports.iter().filter(|port| port.port != own).copied().collect();
    let limit = local_servers::TIME_LIMIT;
    let found = local_servers::local_servers_on(&state.http_client, &ports, limit).await;
    let to_json = |server: &local_servers::LocalServer| {
        json!(LocalServerItem {
            name: server.name,
            provider: server.provider,
            url: &server.url,
            models: &server.models,
        })
    };
    ListResponse::page_of(found.iter().map(to_json).collect(), &page)
}

/// The language of a query; empty if there is none.
fn parse_language(query: Option<&str>) -> Result<String, ApiError> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let language = pairs.find(|(name, _)| name == "language").map(|(_, value)| value);
    let language = language.unwrap_or_default().into_owned();
    let is_tag = language.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if !is_tag || language.len() > MAX_LANGUAGE_BYTES {
        return Err(ApiError::invalid_field("language", "must be a BCP 47 tag such as en-US"));
    }
    Ok(language)
}

async fn voices(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(provider): Path<String>,
    PageQuery(page): PageQuery<false>,
    RawQuery(query): RawQuery,
) -> Result<ListResponse, ApiError> {
    let language = parse_language(query.as_deref())?;
    let choice = TtsChoice { provider, ..TtsChoice::default() };
    let choice = tts_of_workspace(&state, &caller, choice).await?;
    let access = [&choice.url, &choice.token].map(|text| text.as_deref().unwrap_or_default());
    let account = VoiceAccount {
        workspace: Arc::clone(&caller.workspace),
        provider: choice.provider.clone(),
        access: hash_key(&access.join("\n")),
    };
    let cached = state.voice_cache.get(&account, Instant::now());
    let all = match cached {
        Some(all) => all,
        None => {
            let listed = registry_of(&state)?.voices(&choice).await;
            let listed: Arc<[ListedVoice]> = listed.map_err(voices_error)?.into();
            state.voice_cache.insert(account, Arc::clone(&listed), Instant::now());
            listed
        }
    };
    let query = VoiceQuery {
        search: page.search.unwrap_or_default(),
        language,
        offset: usize::try_from(page.offset).unwrap_or(usize::MAX),
        limit: page.perpage.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
    };
    let selected = query.select(all.to_vec());
    let to_json = |voice: &ListedVoice| -> Value { json!(VoiceItem::new(voice)) };
    Ok(ListResponse(selected.voices.iter().map(to_json).collect(), selected.total as i64))
}

fn voices_error(error: VoicesError) -> ApiError {
    match error {
        VoicesError::Unknown => ApiError::NotFound(Resource::Provider),
        VoicesError::NotConfigured(why) => ApiError::Conflict(why),
        VoicesError::Failed(error) => ApiError::ProviderFailed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_a_tag() {
        for (query, expected) in [
            (None, Some("")),
            (Some("search=x"), Some("")),
            (Some("language="), Some("")),
            (Some("language=pt-BR"), Some("pt-BR")),
            (Some("language=a%20b"), None),
            (Some("language=%C3%A4"), None),
            (Some("language=a123456789b123456789c123456789d12345"), None),
        ] {
            let read = parse_language(query).ok();
            assert_eq!(read.as_deref(), expected, "{query:?}");
        }
    }
}
