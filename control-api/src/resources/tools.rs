//! Tools: `/v1/ext/tool`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::validate::{FieldErrors, Fields};
use crate::resources::document_resource::DocumentResource;
use crate::resources::secret_headers::{self, SecretHeaders};
use crate::state::AppState;
use crate::store::json_record::{self, Draft, Table};
use crate::store::{new_id, secrets};

type JsonResult = Result<axum::Json<Value>, ApiError>;

const TOOL: DocumentResource =
    DocumentResource { table: Table::Tool, resource: Resource::Tool, read_error: "Internal server error" };

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/tool", post(create).get(list))
        .route("/v1/ext/tool/{id}", get(read).put(replace).delete(remove))
}

/// Parses a tool. `old` holds the header values of the tool that it replaces.
pub(super) fn parse(body: Value, old: Option<&SecretHeaders>) -> Result<(Value, SecretHeaders), ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let kind = fields.choice("type", &["tool.api", "tool.client"], "tool.api");
    let schema = fields.object("schema");
    if !fields.contains("schema") {
        fields.add_error("schema", "is required");
    }
    let name = if fields.contains("schema") { schema.required("name") } else { String::new() };
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) || name.len() > 64 {
        schema.add_error("name", "must be at most 64 letters, digits, _, - or .");
    }
    let parameters = schema.object("parameters");
    let properties = match parameters.raw("properties") {
        Some(Value::Object(map)) => Value::Object(map.clone()),
        None | Some(Value::Null) => json!({}),
        Some(_) => {
            parameters.add_error("properties", "must be an object");
            json!({})
        }
    };
    let mut schema_parameters = parameters.to_map();
    schema_parameters.insert("type".into(), parameters.choice("type", &["object"], "object").into());
    schema_parameters.insert("properties".into(), properties);
    schema_parameters
        .insert("required".into(), parameters.string_list("required").unwrap_or_default().into());
    let (request, headers) = parse_request(&fields, &kind, old);
    let messages = fields.object("event_messages");
    let message = |event: &str| messages.object(event).text("message").map(|m| json!({"message": m}));
    let on_delay_fields = messages.object("on_delay");
    let on_delay = on_delay_fields.text("message").map(|m| {
        let delay = on_delay_fields.number("delay", 0.0..=600.0).unwrap_or_else(|| 5.into());
        json!({"delay": delay, "message": m})
    });
    let document = json!({
        "type": kind,
        "schema": {
            "type": schema.choice("type", &["function"], "function"),
            "name": name,
            "description": schema.text("description").unwrap_or_default(),
            "parameters": schema_parameters,
        },
        "request_config": request,
        "event_messages": {
            "on_start": message("on_start"),
            "on_success": message("on_success"),
            "on_error": message("on_error"),
            "on_delay": on_delay,
        },
    });
    errors.into_result((document, headers))
}

/// The HTTP request of a `tool.api`; null for a client tool.
fn parse_request(fields: &Fields<'_>, kind: &str, old: Option<&SecretHeaders>) -> (Value, SecretHeaders) {
    let request = fields.object("request_config");
    if kind == "tool.client" {
        // Nothing of it is stored, but invalid values are still rejected.
        request.text("method");
        request.text("url");
        secret_headers::extract(&request, None);
        return (Value::Null, SecretHeaders::new());
    }
    let method = request.text("method").unwrap_or_else(|| "POST".into()).to_ascii_uppercase();
    if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str()) {
        request.add_error("method", "must be one of GET, POST, PUT, PATCH, DELETE");
    }
    let url = request.required("url");
    // A parameter may be in the path or the query, but not in the host: the model's output must not
    // select the server.
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if !url.is_empty()
        && (!crate::http::validate::is_http_url(&url.replace(['{', '}'], ""))
            || authority.contains(['{', '}']))
    {
        request.add_error("url", "must be a valid http(s) URL without a parameter in its host");
    }
    let (masked_headers, secret_headers) = secret_headers::extract(&request, old);
    (json!({"method": method, "url": url, "headers": masked_headers}), secret_headers)
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    document: &'a Value,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let name = document["schema"]["name"].as_str().unwrap_or_default();
    Draft { workspace, id, name, kind: document["type"].as_str(), document: text, secrets, at: clock::now() }
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let (document, headers) = parse(body, None)?;
    let id = new_id();
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = document.to_string();
    let mut tx = state.store.begin_write().await?;
    quota::check_bytes(&state, &mut tx, &caller.workspace, text.len()).await?;
    json_record::insert(&mut tx, Table::Tool, &draft(&caller.workspace, &id, &document, &text, &sealed))
        .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(json!({"id": id, "message": "Tool details created successfully"}))))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    TOOL.list(&state, &caller, &page).await
}

async fn read(State(state): State<Arc<AppState>>, caller: ApiCaller, Path(id): Path<String>) -> JsonResult {
    TOOL.read(&state, &caller, &id).await.map(axum::Json)
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult {
    // An invalid body is reported before a missing tool.
    parse(body.clone(), None)?;
    let id = TOOL.parse_id(&id)?;
    let mut tx = state.store.begin_write().await?;
    let row = json_record::find_in(&mut tx, Table::Tool, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| TOOL.not_found())?;
    let old: SecretHeaders = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let (document, headers) = parse(body, Some(&old))?;
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = document.to_string();
    quota::check_growth(&state, &mut tx, &caller.workspace, &row, text.len() + sealed.len()).await?;
    json_record::update(&mut tx, Table::Tool, &draft(&caller.workspace, &id, &document, &text, &sealed))
        .await?;
    tx.commit().await?;
    Ok(axum::Json(json!({"id": id, "message": "Tool details updated successfully"})))
}

async fn remove(State(state): State<Arc<AppState>>, caller: ApiCaller, Path(id): Path<String>) -> JsonResult {
    let id = TOOL.remove(&state, &caller, &id).await?;
    Ok(axum::Json(json!({"id": id, "message": "Tool details deleted successfully"})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Value {
        json!({
            "type": "tool.api",
            "schema": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"]}},
            "request_config": {"method": "get", "url": "http://127.0.0.1:1/{city}", "headers": {"Authorization": "Bearer x"}},
            "event_messages": {"on_start": {"message": "One moment."}, "on_delay": {"message": "Still looking."}},
        })
    }

    fn invalid_fields(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut tool = body();
        change(&mut tool);
        match parse(tool, None) {
            Err(ApiError::Invalid(errors)) => errors.into_iter().map(|f| f.field).collect(),
            other => panic!("{:?}", other.map(|(d, _)| d)),
        }
    }

    #[test]
    fn header_values_are_hidden_and_kept_by_stars() {
        let (document, headers) = parse(body(), None).unwrap();
        assert_eq!(
            document["request_config"],
            json!({"method": "GET", "url": "http://127.0.0.1:1/{city}", "headers": {"Authorization": "***"}})
        );
        assert_eq!(headers["Authorization"], "Bearer x");
        assert_eq!(document["event_messages"]["on_delay"], json!({"delay": 5, "message": "Still looking."}));
        let mut again = body();
        again["request_config"]["headers"] = json!({"Authorization": "***", "X": "***"});
        let (document, retained) = parse(again, Some(&headers)).unwrap();
        assert_eq!(retained, headers);
        assert_eq!(document["request_config"]["headers"], json!({"Authorization": "***"}));
    }

    #[test]
    fn what_a_tool_may_not_be_is_named() {
        assert_eq!(invalid_fields(|t| t["schema"] = Value::Null), ["schema.name"]);
        assert_eq!(invalid_fields(|t| t["type"] = "tool.magic".into()), ["type"]);
        assert_eq!(
            invalid_fields(|t| t["request_config"]["url"] = "http://{host}/".into()),
            ["request_config.url"]
        );
        assert_eq!(
            invalid_fields(|t| t["request_config"]["url"] = "file:///etc".into()),
            ["request_config.url"]
        );
        assert_eq!(
            invalid_fields(
                |t| t["request_config"]["headers"] = json!({"A": "b\r\nC: d", "content-Length": "1"})
            ),
            ["request_config.headers.A", "request_config.headers.content-Length"]
        );
        assert_eq!(
            invalid_fields(|t| t["schema"]["parameters"] = json!({"properties": []})),
            ["schema.parameters.properties"]
        );
    }
}
