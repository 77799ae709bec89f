//! Providers that agents may select for STT, LLM and TTS: `/v1/ext/providers`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use models::registry::{self, Provider};
use serde_json::json;

use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery};
use crate::state::AppState;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/providers", get(list))
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
