//! The API as an OpenAPI 3.1 document, built from the table of [`operations`] and
//! the schemas of the types that handlers read and write ([`schemas`]). It is served at
//! `/openapi.json`, readable at `/docs`, and stored in `docs/openapi.json`. One test compares the
//! stored document. Another one sends a request for every operation of the table to the router, and
//! searches the source for routes that are missing in the table.

mod characters;
mod derived;
mod json_schema;
mod schemas;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use crate::operations::{self, Auth, Body, Operation};
use crate::scope::Scope;
use crate::state::AppState;
use crate::web;

static DOCUMENT_JSON: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document_json()));
static DOCS_PAGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(docs_page()));

pub(crate) fn routes() -> Router<Arc<AppState>> {
    let document = async || {
        ([(header::CONTENT_TYPE, "application/json")], DOCUMENT_JSON.clone()).into_response()
    };
    let docs = async || -> Response { web::document(DOCS_PAGE.clone()) };
    Router::new().route("/openapi.json", get(document)).route("/docs", get(docs))
}

/// The document as it is served and stored.
#[must_use]
#[expect(clippy::expect_used, reason = "plain data serializes")]
pub fn document_json() -> String {
    let mut bytes = Vec::new();
    // Short indents: the document is deep.
    let formatter = PrettyFormatter::with_indent(b" ");
    let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
    document().serialize(&mut serializer).expect("a document is plain data");
    let mut text = String::from_utf8(bytes).expect("JSON is UTF-8");
    text.push('\n');
    text
}

fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation_object(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Visavis",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Live conversations with video agents: agents and their resources, \
                conversations, webhooks.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "tags": tags(),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
            "schemas": schemas::component_schemas(),
        },
    })
}

fn tags() -> Vec<Value> {
    let mut names: Vec<&str> = Vec::new();
    for operation in operations::all() {
        if !names.contains(&operation.tag) {
            names.push(operation.tag);
        }
    }
    names.iter().map(|name| json!({ "name": name })).collect()
}

fn reference(schema: &str) -> Value {
    match schema.strip_prefix('[') {
        Some(item) => json!({"type": "array", "items": reference(item.trim_end_matches(']'))}),
        None => json!({"$ref": format!("#/components/schemas/{schema}")}),
    }
}

fn response_object(description: &str, media_type: &str, schema: &Value) -> Value {
    json!({"description": description, "content": {media_type: {"schema": schema}}})
}

fn operation_object(operation: &Operation) -> Value {
    let mut object = Map::new();
    object.insert("tags".into(), json!([operation.tag]));
    object.insert("summary".into(), operation.summary.into());
    object.insert("operationId".into(), operation_id(operation).into());
    let security = match operation.auth {
        Auth::ApiKey => json!([{"key": []}]),
        Auth::SessionToken => json!([{"token": []}]),
        Auth::LocalOrMetricsToken => json!([{}, {"token": []}]),
        Auth::Public => json!([]),
    };
    object.insert("security".into(), security);
    if operation.auth == Auth::ApiKey {
        object.insert("x-scope".into(), operation.scope.name().into());
    }
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        object.insert("parameters".into(), parameters.into());
    }
    const JSON: &str = "application/json";
    const FORM: &str = "multipart/form-data";
    let content = match operation.body {
        Body::None => Vec::new(),
        Body::Json(schema) => vec![(JSON, reference(schema))],
        Body::Form(schema) => vec![(FORM, reference(schema))],
        Body::JsonOrForm(schema, form) => vec![(JSON, reference(schema)), (FORM, reference(form))],
        Body::Sdp => vec![("application/sdp", json!({"type": "string"}))],
        Body::Trickle => vec![("application/trickle-ice-sdpfrag", json!({"type": "string"}))],
    };
    if !content.is_empty() {
        let content: Map<String, Value> = content
            .into_iter()
            .map(|(media_type, schema)| (media_type.to_owned(), json!({ "schema": schema })))
            .collect();
        object.insert("requestBody".into(), json!({"required": true, "content": content}));
    }
    object.insert("responses".into(), responses(operation));
    Value::Object(object)
}

/// `get /v1/ext/agent/{id}` → `get_ext_agent_id`
fn operation_id(operation: &Operation) -> String {
    let words = operation.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && *word != "v1");
    std::iter::once(operation.method).chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let mut parameters = Vec::new();
    for part in operation.path.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or_default();
        parameters.push(
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
        );
    }
    if operation.idempotent {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "A key that the client chooses. The same request with the same key gets \
                            the same response for 24 hours and creates nothing more",
        }));
    }
    let mut query = |name: &str, schema: Value, description: &str| {
        parameters.push(json!({
            "name": name,
            "in": "query",
            "required": false,
            "schema": schema,
            "description": description,
        }));
    };
    if operation.by_language {
        query("language", json!({"type": "string"}), "BCP 47 tag");
    }
    if operation.list {
        query(
            "offset",
            json!({"type": "integer", "minimum": 0, "default": 0}),
            "Number of items to skip",
        );
        query(
            "perpage",
            json!({"type": "integer", "minimum": 1}),
            "Maximum number of items, at most 100; default: 10, or all items if the list is not \
             paged",
        );
        query("search", json!({"type": "string"}), "Text in an item's name or id, in any case");
        query(
            "fromDate",
            json!({"type": "string", "format": "date"}),
            "Created on or after this day (UTC)",
        );
        query(
            "toDate",
            json!({"type": "string", "format": "date"}),
            "Created before this day (UTC)",
        );
        query("type", json!({"type": "string"}), "Items of this type");
    }
    parameters
}

fn responses(operation: &Operation) -> Value {
    let mut responses = Map::new();
    for (status, schema, description) in operation.responses {
        let response = match *schema {
            "" => json!({ "description": description }),
            "text" => response_object(description, "text/plain", &json!({"type": "string"})),
            "metrics" => response_object(
                description,
                "application/openmetrics-text",
                &json!({"type": "string"}),
            ),
            "html" => response_object(description, "text/html", &json!({"type": "string"})),
            "sdp" => response_object(description, "application/sdp", &json!({"type": "string"})),
            "wav" => response_object(
                description,
                "audio/wav",
                &json!({"type": "string", "format": "binary"}),
            ),
            "webm" => response_object(
                description,
                "video/webm",
                &json!({"type": "string", "format": "binary"}),
            ),
            "webp" => response_object(
                description,
                "image/webp",
                &json!({"type": "string", "format": "binary"}),
            ),
            schema => response_object(description, "application/json", &reference(schema)),
        };
        responses.insert(status.to_string(), response);
    }
    if operation.list
        && let Some(answer) = responses.get_mut("200")
    {
        answer["headers"] = json!({
            "X-Total-Count": {
                "description": "Number of all matches",
                "schema": {"type": "integer"},
            },
        });
    }
    let mut error = |status: &str, schema: &str, description: &str| {
        let response = response_object(description, "application/json", &reference(schema));
        responses.entry(status).or_insert(response);
    };
    if operation.auth != Auth::Public {
        error("401", "Error", "The key or token is not valid");
        error("500", "Error", "Internal error; the reason is in the server's log");
    }
    if operation.auth == Auth::ApiKey && operation.scope > Scope::Read {
        error("403", "Error", "The scope of this key does not allow it");
    }
    if operation.workspace_limited {
        error(
            "429",
            "Invalid",
            "Too many requests with this key, or a limit of its workspace is reached; \
             Retry-After gives the time to wait, if waiting helps",
        );
    }
    if operation.auth == Auth::ApiKey {
        error(
            "429",
            "Error",
            "Too many requests with this key; Retry-After gives the time to wait",
        );
    }
    if operation.list {
        error("400", "Invalid", "The query is not valid");
    }
    match operation.body {
        Body::None => {}
        Body::Form(_) => {
            error("400", "Invalid", "The body is not valid");
            error("415", "Error", "The media type of the body is not supported");
        }
        _ => {
            error("400", "Invalid", "The body is not valid");
            error("413", "Error", "The body is too large");
            error("415", "Error", "The media type of the body is not supported");
        }
    }
    if let Some(schema) = operation.not_found_schema {
        error("404", schema, "The record does not exist");
    }
    error("421", "Error", "The server does not accept this Host header");
    Value::Object(responses)
}

/// An HTML page with every operation, its request and its responses.
fn docs_page() -> String {
    let mut body = String::new();
    let mut current_tag = "";
    for operation in operations::all() {
        if operation.tag != current_tag {
            current_tag = operation.tag;
            body.push_str(&format!("<h2>{}</h2>\n", web::escape(current_tag)));
        }
        let auth = match operation.auth {
            Auth::ApiKey => format!("API key of scope {}", operation.scope),
            Auth::SessionToken => "session token".into(),
            Auth::LocalOrMetricsToken => "a client on this machine, or the metrics token".into(),
            Auth::Public => "nothing".into(),
        };
        body.push_str(&format!(
            "<details><summary><code>{} {}</code> {}</summary><p>Requires: {auth}.</p>",
            operation.method.to_uppercase(),
            web::escape(operation.path),
            web::escape(operation.summary),
        ));
        if let Body::Json(schema) | Body::Form(schema) | Body::JsonOrForm(schema, _) =
            operation.body
        {
            let all = schemas::component_schemas();
            let schema_json = serde_json::to_string_pretty(&all[schema]).unwrap_or_default();
            body.push_str(&format!("<p>Body:</p><pre>{}</pre>", web::escape(&schema_json)));
        }
        body.push_str("<ul>");
        if let Value::Object(answers) = responses(operation) {
            for (status, response) in answers {
                let words = response["description"].as_str().unwrap_or_default();
                body.push_str(&format!("<li><b>{status}</b> {}</li>", web::escape(words)));
            }
        }
        body.push_str("</ul></details>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Visavis API</title>\
         <link rel=\"stylesheet\" href=\"/assets/base.css\">\
         <link rel=\"stylesheet\" href=\"/assets/docs.css\">\
         <link rel=\"icon\" href=\"/assets/icon.svg\"></head><body><main><h1>Visavis API</h1>\
         <p>API requests require the header <code>x-api-key</code>. This document as JSON: \
         <a href=\"/openapi.json\">/openapi.json</a>.</p>\n{body}</main></body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_in_docs_is_the_one_that_is_served() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os("VISAVIS_WRITE_OPENAPI").is_some() {
            std::fs::write(&file, document_json()).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == document_json(),
            "docs/openapi.json is stale: run VISAVIS_WRITE_OPENAPI=1 cargo test --release -p \
             visavis-control-api openapi"
        );
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
        let document = document();
        let text = document.to_string();
        let known: BTreeSet<&str> = document["components"]["schemas"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let used: BTreeSet<&str> = text
            .split("#/components/schemas/")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        assert_eq!(used, known);
    }

    #[test]
    fn no_two_operations_share_an_id_or_a_place() {
        let ids: BTreeSet<String> = operations::all().map(operation_id).collect();
        assert_eq!(ids.len(), operations::all().count());
    }

    fn read_sources(dir: &Path, found: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                read_sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                found.push_str(text.split("\n#[cfg(test)]").next().unwrap());
            }
        }
    }

    #[test]
    fn every_route_of_the_source_is_in_the_table() {
        let mut text = String::new();
        read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../src"), &mut text);
        let routes: BTreeSet<&str> = text
            .split(".route(")
            .skip(1)
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .collect();
        assert!(routes.len() > 30, "{routes:?}");
        let documented: BTreeSet<&str> =
            operations::all().map(|operation| operation.path).collect();
        // Files and subpaths of the pages.
        let pages: BTreeSet<&str> = [
            "/assets/{file}",
            "/assets/branding.css",
            "/assets/console/{file}",
            "/console/{*page}",
        ]
        .into();
        let undocumented: Vec<&&str> =
            routes.difference(&documented).filter(|path| !pages.contains(**path)).collect();
        assert!(undocumented.is_empty(), "not in the table: {undocumented:?}");
        let unrouted: Vec<&&str> = documented.difference(&routes).collect();
        assert!(unrouted.is_empty(), "in the table only: {unrouted:?}");
    }
}
