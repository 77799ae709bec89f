//! Tools: `/v1/ext/tool`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::Value;

use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::http::validate::{FieldErrors, is_http_url};
use crate::resources::document_resource::DocumentResource;
use crate::resources::secret_headers::{self, SecretHeaders};
use crate::state::AppState;
use crate::store::Lock;
use crate::store::json_record::{self, Draft, Table};
use crate::store::tool::{ToolDocument, ToolKind, ToolRequest};
use crate::store::{new_id, secrets};

const TOOL: DocumentResource = DocumentResource {
    table: Table::Tool,
    resource: Resource::Tool,
    read_error: "Internal server error",
};

/// Path of the headers in a request.
const HEADERS_PATH: &str = "request_config.headers";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/tool", post(create).get(list))
        .route("/v1/ext/tool/{id}", get(read).put(replace).delete(remove))
}

/// Parses a tool. `old` holds the header values of the tool that it replaces.
pub(crate) fn parse(
    body: Value,
    old: Option<&SecretHeaders>,
) -> Result<(ToolDocument, SecretHeaders), ApiError> {
    let errors = FieldErrors::default();
    let mut tool: ToolDocument = body::read(body, &errors)?;
    let name = &tool.schema.name;
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        || name.len() > 64
    {
        errors.add("schema.name", "must be at most 64 letters, digits, _, - or .");
    }
    let messages = &mut tool.event_messages;
    for message in [&mut messages.on_start, &mut messages.on_success, &mut messages.on_error] {
        message.take_if(|message| message.message.is_none());
    }
    messages.on_delay.take_if(|message| message.message.is_none());
    let mut headers = SecretHeaders::new();
    if tool.kind == ToolKind::Client {
        // Nothing of it is stored, but invalid values are still rejected.
        if let Some(mut request) = tool.request_config.take() {
            secret_headers::take_values(&mut request.headers, HEADERS_PATH, None, &errors);
        }
    } else {
        headers = check_request(tool.request_config.get_or_insert_default(), old, &errors);
    }
    errors.into_result((tool, headers))
}

/// Checks the request of a `tool.api` and takes the header values out.
fn check_request(
    request: &mut ToolRequest,
    old: Option<&SecretHeaders>,
    errors: &FieldErrors,
) -> SecretHeaders {
    request.method.make_ascii_uppercase();
    if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&request.method.as_str()) {
        errors.add("request_config.method", "must be one of GET, POST, PUT, PATCH, DELETE");
    }
    // A parameter may be in the path or the query, but not in the host: the model's output must not
    // select the server.
    let fault = match request.url.as_deref() {
        None => (!errors.contains("request_config.url")).then_some("is required"),
        Some(url) if url.trim().is_empty() => Some("must not be empty"),
        Some(url) => {
            let authority = url
                .split_once("://")
                .map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
            let is_valid =
                is_http_url(&url.replace(['{', '}'], "")) && !authority.contains(['{', '}']);
            (!is_valid).then_some("must be a valid http(s) URL without a parameter in its host")
        }
    };
    if let Some(fault) = fault {
        errors.add("request_config.url", fault);
    }
    secret_headers::take_values(&mut request.headers, HEADERS_PATH, old, errors)
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    tool: &'a ToolDocument,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let (name, kind) = (&tool.schema.name, Some(tool.kind.name()));
    Draft { workspace, id, name, kind, document: text, secrets, at: clock::now() }
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Done>), ApiError> {
    let (document, headers) = parse(body, None)?;
    let id = new_id();
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = json_record::to_text(&document);
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    quota::check_bytes(&state, &mut tx, &caller.workspace, text.len()).await?;
    json_record::insert(
        &mut tx,
        Table::Tool,
        &draft(&caller.workspace, &id, &document, &text, &sealed),
    )
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(Done { id, message: "Tool details created successfully" })))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    TOOL.list(&state, &caller, &page).await
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    TOOL.read(&state, &caller, &id).await.map(axum::Json)
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Done> {
    // An invalid body is reported before a missing tool.
    parse(body.clone(), None)?;
    let id = TOOL.parse_id(&id)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Tool, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| TOOL.not_found())?;
    let old: SecretHeaders = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let (document, headers) = parse(body, Some(&old))?;
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = json_record::to_text(&document);
    quota::check_growth(&state, &mut tx, &caller.workspace, &row, text.len() + sealed.len())
        .await?;
    json_record::update(
        &mut tx,
        Table::Tool,
        &draft(&caller.workspace, &id, &document, &text, &sealed),
    )
    .await?;
    tx.commit().await?;
    Ok(axum::Json(Done { id, message: "Tool details updated successfully" }))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = TOOL.remove(&state, &caller, &id).await?;
    Ok(axum::Json(Done { id, message: "Tool details deleted successfully" }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body() -> Value {
        json!({
            "type": "tool.api",
            "schema": {
                "name": "weather",
                "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
            "request_config": {
                "method": "get",
                "url": "http://127.0.0.1:1/{city}",
                "headers": {"Authorization": "Bearer x"},
            },
            "event_messages": {
                "on_start": {"message": "One moment."},
                "on_delay": {"message": "Still looking."},
            },
        })
    }

    /// The document as JSON, and the header values.
    fn parse_json(
        body: Value,
        old: Option<&SecretHeaders>,
    ) -> Result<(Value, SecretHeaders), ApiError> {
        parse(body, old).map(|(tool, headers)| (json!(tool), headers))
    }

    fn invalid_fields(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut tool = body();
        change(&mut tool);
        match parse(tool, None) {
            Err(ApiError::Invalid(errors)) => errors.into_iter().map(|f| f.field).collect(),
            other => panic!("{:?}", other.map(|(tool, _)| tool)),
        }
    }

    #[test]
    fn header_values_are_hidden_and_kept_by_stars() {
        let (document, headers) = parse_json(body(), None).unwrap();
        assert_eq!(
            document["request_config"],
            json!({
                "method": "GET",
                "url": "http://127.0.0.1:1/{city}",
                "headers": {"Authorization": "***"},
            })
        );
        assert_eq!(headers["Authorization"], "Bearer x");
        assert_eq!(
            document["event_messages"]["on_delay"],
            json!({"delay": 5, "message": "Still looking."})
        );
        let mut again = body();
        again["request_config"]["headers"] = json!({"Authorization": "***", "X": "***"});
        let (document, retained) = parse_json(again, Some(&headers)).unwrap();
        assert_eq!(retained, headers);
        assert_eq!(document["request_config"]["headers"], json!({"Authorization": "***"}));
    }

    #[test]
    fn an_invalid_tool_is_rejected_with_its_field() {
        assert_eq!(invalid_fields(|t| t["schema"] = Value::Null), ["schema.name"]);
        assert_eq!(invalid_fields(|t| t["type"] = "tool.magic".into()), ["type"]);
        assert_eq!(invalid_fields(|t| t["type"] = Value::Null), ["type"]);
        for name in ["a".repeat(65), "what is it?".into()] {
            let mut tool = body();
            tool["schema"]["name"] = name.into();
            let Err(ApiError::Invalid(errors)) = parse(tool, None) else {
                panic!("it is accepted")
            };
            let reason = "must be at most 64 letters, digits, _, - or .";
            assert_eq!(errors.len(), 1);
            assert_eq!(
                (errors[0].field.as_str(), errors[0].reason.as_str()),
                ("schema.name", reason)
            );
        }
        assert_eq!(
            invalid_fields(|t| t["request_config"]["url"] = "http://{host}/".into()),
            ["request_config.url"]
        );
        assert_eq!(
            invalid_fields(|t| t["request_config"]["url"] = "file:///etc".into()),
            ["request_config.url"]
        );
        assert_eq!(
            invalid_fields(|t| t["request_config"]["headers"] =
                json!({"A": "b\r\nC: d", "content-Length": "1"})),
            ["request_config.headers.A", "request_config.headers.content-Length"]
        );
        assert_eq!(
            invalid_fields(|t| t["schema"]["parameters"] = json!({"properties": []})),
            ["schema.parameters.properties"]
        );
    }
}
