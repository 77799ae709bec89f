//! `GET /join/{conversation_id}/about`: what the call page may know of its conversation before it offers anything. Opened by the
//! session token alone, as the doors are, and refused like them: 401 for a link that has expired, 409 once the conversation is over.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use serde_json::{Value, json};

use crate::agent::show;
use crate::app::Shared;
use crate::door;
use crate::error::ApiError;
use crate::request::Path;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/join/{conversation_id}/about", get(about))
}

async fn about(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<axum::Json<Value>, ApiError> {
    let (parts, _) = request.into_parts();
    let claims = door::claims_for(&shared, &parts, &id)?;
    let row = door::opened(&shared, &claims).await?;
    let agent = show::parsed(&row.agent_document)?;
    // Who speaks: the name that the agent has in its picture, else its own.
    let persona = agent["avatars"][0]["persona_name"].as_str().filter(|name| !name.trim().is_empty());
    Ok(axum::Json(json!({"status": row.status, "persona_name": persona.unwrap_or(&row.agent_name)})))
}
