//! The operations of the API, one row each: method, path, scope, request and responses. The names
//! of bodies are those of schemas in the OpenAPI document.

mod agents;
mod console;
mod conversations;
mod joining;
mod operation;
mod providers;
mod videos;

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;

pub(crate) use self::operation::{Auth, Body, Operation};
use crate::scope::Scope;

/// By method and path.
static SCOPES: LazyLock<HashMap<(&str, &str), Scope>> = LazyLock::new(|| {
    all().map(|operation| ((operation.method, operation.path), operation.scope)).collect()
});

/// All operations.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    agents::OPERATIONS
        .iter()
        .chain(conversations::OPERATIONS)
        .chain(joining::OPERATIONS)
        .chain(providers::OPERATIONS)
        .chain(videos::OPERATIONS)
        .chain(console::OPERATIONS)
}

/// The scope that an API key needs for the operation of this route (`/v1/ext/agent/{id}`); `None`
/// if there is no such operation.
pub(crate) fn required_scope(method: &Method, route: &str) -> Option<Scope> {
    let method = match method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => return None,
    };
    SCOPES.get(&(method, route)).copied()
}
