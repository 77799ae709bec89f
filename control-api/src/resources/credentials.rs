//! Keys of a workspace at vendors and services: `/v1/ext/credentials`. They are write-only.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, put};
use egress::AddressClass;
use models::registry::Vendor;
use models::registry::settings::key_fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::{Host, Url};

use crate::clock::Iso8601;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{BaseUrl, Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::http::validate::FieldErrors;
use crate::meeting_services;
use crate::state::AppState;
use crate::state::meetings::WebhookAccount;
use crate::store::Lock;
use crate::store::credential::{self, Credential};
use crate::store::secrets::SECRET_MASK;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/credentials", get(list))
        .route("/v1/ext/credentials/{name}", put(replace).delete(remove))
}

/// A stored key, without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Credential")]
pub(crate) struct CredentialItem<'a> {
    /// Name of the vendor or service, as agents use it.
    name: &'a str,
    display_name: &'a str,
    /// Always `***`.
    token: &'static str,
    /// The address that the key is sent to; null = the vendor's.
    url: Option<&'a str>,
    /// Of a meeting service: `***` if webhooks can be verified.
    webhook_secret: Option<&'static str>,
    /// Of a meeting service: the address to enter there as the receiver of webhooks.
    webhook_url: Option<String>,
    created_at: Iso8601,
    updated_at: Iso8601,
}

/// A key to store.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "CredentialBody")]
pub(crate) struct CredentialRequest {
    /// The key. `***` keeps the stored one, if the address does not change.
    #[schemars(length(min = 1, max = 4096))]
    token: String,
    /// Base URL of the server that the key is for; null = the vendor's. The key is never sent to
    /// another one.
    #[schemars(length(max = 4096))]
    url: Option<String>,
    /// Of a meeting service: the secret that signs its webhooks. `***` keeps the stored one.
    #[schemars(length(max = 4096))]
    webhook_secret: Option<String>,
}

/// Name and display name of a vendor or service, by any of its names.
fn find_name(name: &str) -> Option<(&'static str, &'static str)> {
    let service =
        meeting_services::SERVICES.iter().find(|service| service.0.eq_ignore_ascii_case(name));
    service
        .copied()
        .or_else(|| Vendor::of_provider(name).map(|vendor| (vendor.name, vendor.display_name)))
}

/// Why a key cannot be sent to this address; `None` if it can. Names are resolved, and their
/// addresses checked, whenever a connection is opened.
fn url_fault(text: &str, allows_private: bool) -> Option<&'static str> {
    const FORM: &str = "must be a URL of http, https, ws or wss with a host";
    let Ok(url) = Url::parse(text) else { return Some(FORM) };
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") || !url.has_host() {
        return Some(FORM);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not contain a user name or a password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Some("must not contain a query or a fragment");
    }
    let class = match url.host() {
        Some(Host::Ipv4(address)) => egress::classify(address.into()),
        Some(Host::Ipv6(address)) => egress::classify(address.into()),
        Some(Host::Domain(name)) if name.trim_end_matches('.').ends_with("localhost") => {
            AddressClass::Private
        }
        _ => AddressClass::Public,
    };
    let is_allowed = match class {
        AddressClass::Public => true,
        AddressClass::Private => allows_private,
        AddressClass::Metadata => false,
    };
    (!is_allowed).then_some("is an address that this server must not use")
}

/// Reads a request for the key `name`, of which `stored` is the present version.
fn parse(
    body: Value,
    name: &str,
    stored: Option<Credential>,
    allows_private: bool,
) -> Result<Credential, ApiError> {
    let errors = FieldErrors::default();
    let CredentialRequest { token, url, webhook_secret } = body::read(body, &errors)?;
    let stored_secret = stored.as_ref().and_then(|stored| stored.webhook_secret.clone());
    let webhook_secret = parse_webhook_secret(webhook_secret, name, stored_secret, &errors);
    let url = url.map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
    match &url {
        Some(url) => {
            if let Some(fault) = url_fault(url, allows_private) {
                errors.add("url", fault);
            }
        }
        None if name == "custom" => errors.add("url", "is required"),
        None => {}
    }
    let token = token.trim().to_owned();
    let token = if token == SECRET_MASK {
        match stored {
            Some(stored) if stored.url == url => stored.token,
            Some(_) => {
                errors.add("token", "must be given again, because the address changes");
                String::new()
            }
            None => {
                errors.add("token", "no key is stored");
                String::new()
            }
        }
    } else {
        if token.is_empty() && !errors.contains("token") {
            errors.add("token", "is required");
        } else if let Some(fault) = key_fault(&token) {
            errors.add("token", fault);
        }
        token
    };
    errors.into_result(Credential { token, url, webhook_secret })
}

/// The secret of a request for a meeting service's key.
fn parse_webhook_secret(
    given: Option<String>,
    name: &str,
    stored: Option<String>,
    errors: &FieldErrors,
) -> Option<String> {
    let secret = given.map(|secret| secret.trim().to_owned()).filter(|text| !text.is_empty())?;
    if meeting_services::SERVICES.iter().all(|(known, _)| *known != name) {
        errors.add("webhook_secret", "only keys of meeting services have one");
    } else if secret == SECRET_MASK {
        if stored.is_none() {
            errors.add("webhook_secret", "no secret is stored");
        }
        return stored;
    } else if let Some(fault) = key_fault(&secret) {
        errors.add("webhook_secret", fault);
    } else if !meeting_services::is_secret(&secret) {
        errors.add("webhook_secret", "must be in base64, as the service shows it");
    }
    Some(secret)
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    let mut items = Vec::new();
    for row in state.store.credential_rows(&caller.workspace).await? {
        let display_name = find_name(&row.name).map_or(&*row.name, |known| known.1);
        let text = format!("{}\n{display_name}", row.name).to_lowercase();
        let matches = page.search.as_ref().is_none_or(|part| text.contains(part))
            && page.from.is_none_or(|from| row.created_at >= from)
            && page.to.is_none_or(|to| row.created_at < to);
        if !matches {
            continue;
        }
        let Credential { url, webhook_secret, .. } = row.open(&state.vault, &caller.workspace)?;
        let is_service = meeting_services::SERVICES.iter().any(|(known, _)| *known == row.name);
        let webhook_url = is_service.then(|| {
            let workspace = Some(caller.workspace.to_string());
            let account = WebhookAccount { provider: row.name.clone(), workspace };
            format!("{base}{}", state.meetings.webhook_path(&account))
        });
        items.push(json!(CredentialItem {
            name: &row.name,
            display_name,
            token: SECRET_MASK,
            url: url.as_deref(),
            webhook_secret: webhook_secret.map(|_| SECRET_MASK),
            webhook_url,
            created_at: Iso8601(row.created_at),
            updated_at: Iso8601(row.updated_at),
        }));
    }
    Ok(ListResponse::page_of(items, &page))
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(name): Path<String>,
    Json(body): Json,
) -> JsonResult<Done> {
    let (name, _) = find_name(&name).ok_or(ApiError::NotFound(Resource::Provider))?;
    let workspace = &*caller.workspace;
    let mut tx = state.store.begin_write(Lock::Workspace(workspace)).await?;
    let row = credential::find(&mut tx, workspace, name).await?;
    // A new key also replaces a stored one that cannot be decrypted.
    let stored = row.and_then(|row| row.open(&state.vault, workspace).ok());
    let old_bytes = stored.as_ref().map_or(0, stored_bytes);
    let old_url = stored.as_ref().map(|stored| stored.url.clone());
    let credential = parse(body, name, stored, state.config.allows_private_targets())?;
    if old_url.is_some_and(|old| old != credential.url) {
        ensure_no_bots(&state, workspace, name).await?;
    }
    let additional = stored_bytes(&credential).saturating_sub(old_bytes);
    if additional > 0 {
        quota::check_bytes(&state, &mut tx, workspace, additional).await?;
    }
    credential::put(&mut tx, &state.vault, workspace, name, &credential).await?;
    tx.commit().await?;
    if let Some(registry) = &state.config.registry {
        let url = credential.url.as_deref().unwrap_or_default();
        registry.forget_failures(name, url, &credential.token);
    }
    Ok(axum::Json(Done { id: name.to_owned(), message: "Credential stored" }))
}

/// Refuses to remove an account while agents are in meetings with it: nothing could remove them.
async fn ensure_no_bots(state: &AppState, workspace: &str, name: &str) -> Result<(), ApiError> {
    if state.store.has_open_bots(workspace, name).await? {
        return Err(ApiError::Conflict("Agents are in meetings with this account".into()));
    }
    Ok(())
}

/// Approximate size of a stored key.
fn stored_bytes(credential: &Credential) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    credential.token.len() + length(&credential.url) + length(&credential.webhook_secret)
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(name): Path<String>,
) -> JsonResult<Done> {
    let (name, _) = find_name(&name).ok_or(ApiError::NotFound(Resource::Provider))?;
    ensure_no_bots(&state, &caller.workspace, name).await?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let found = credential::delete(&mut tx, &caller.workspace, name).await?;
    tx.commit().await?;
    if !found {
        return Err(ApiError::NotFound(Resource::Credential));
    }
    Ok(axum::Json(Done { id: name.to_owned(), message: "Credential deleted" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: Value, name: &str, stored: Option<Credential>) -> Vec<(String, String)> {
        match parse(body, name, stored, false) {
            Err(ApiError::Invalid(errors)) => {
                errors.into_iter().map(|error| (error.field, error.reason)).collect()
            }
            Ok(_) => Vec::new(),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_those_of_vendors_and_of_meeting_services() {
        for (name, expected) in [
            ("ElevenLabs", Some("elevenlabs")),
            ("11labs", Some("elevenlabs")),
            ("gemini", Some("google")),
            ("openai-responses", Some("openai")),
            ("Recall", Some("recall")),
            ("attendee", Some("attendee")),
            ("builtin", None),
            ("", None),
        ] {
            assert_eq!(find_name(name).map(|found| found.0), expected, "{name}");
        }
    }

    #[test]
    fn a_key_and_its_address_are_checked_and_never_repeated() {
        let token = |token: &str| json!({ "token": token });
        for body in [token(""), token(" "), json!({}), token(&"x".repeat(4097))] {
            let found = faults(body, "openai", None);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].0, "token", "{found:?}");
        }
        let reason = "must not contain white space or control characters";
        for key in ["a\nb", "a b", "a\tb", "a\u{a0}b", "a\u{7f}b"] {
            let found = faults(token(key), "openai", None);
            assert_eq!(found, [("token".into(), reason.into())], "{key:?}");
        }
        for url in [
            "ftp://x",
            "api.example",
            "https://",
            "https://user:secret@api.example",
            "https://api.example/?key=secret",
            "http://127.0.0.1:8000",
            "http://[::ffff:10.0.0.1]",
            "http://169.254.169.254",
            "http://localhost:8000",
            "http://a.localhost.",
        ] {
            let found = faults(json!({"token": "k", "url": url}), "openai", None);
            assert_eq!(found.len(), 1, "{url}: {found:?}");
            assert!(found[0].0 == "url" && !found[0].1.contains("secret"), "{url}: {found:?}");
        }
        assert_eq!(
            faults(json!({"token": "k", "url": "wss://api.example/v1"}), "openai", None),
            []
        );
        assert_eq!(faults(token("k"), "custom", None), [("url".into(), "is required".into())]);
        let private = json!({"token": "k", "url": "http://127.0.0.1:8000"});
        assert!(parse(private, "openai", None, true).is_ok());
        let metadata = json!({"token": "k", "url": "http://169.254.169.254"});
        assert!(parse(metadata, "openai", None, true).is_err());
    }

    #[test]
    fn a_secret_that_could_not_verify_webhooks_is_refused() {
        let body = |secret: &str| json!({"token": "k", "webhook_secret": secret});
        let reason = "must be in base64, as the service shows it";
        for secret in ["%%%", "whsec_", "whsec_%", "c2VjcmV"] {
            let found = faults(body(secret), "recall", None);
            assert_eq!(found, [("webhook_secret".into(), reason.into())], "{secret:?}");
        }
        for secret in ["c2VjcmV0", "whsec_c2VjcmV0", " c2VjcmV0 "] {
            assert_eq!(faults(body(secret), "recall", None), [], "{secret:?}");
        }
        let found = faults(body("c2VjcmV0"), "openai", None);
        assert!(found.len() == 1 && found[0].0 == "webhook_secret", "{found:?}");
    }

    #[test]
    fn the_mask_keeps_a_key_only_for_its_own_address() {
        let stored = |url: Option<&str>| {
            Some(Credential {
                token: "secret".into(),
                url: url.map(str::to_owned),
                webhook_secret: None,
            })
        };
        let masked = |url: Value| json!({"token": "***", "url": url});
        let read = parse(masked(Value::Null), "openai", stored(None), false);
        assert_eq!(read.ok().map(|read| read.token).as_deref(), Some("secret"));
        for (url, stored) in [
            (json!("https://other.example"), stored(None)),
            (Value::Null, stored(Some("https://own.example"))),
            (Value::Null, None),
        ] {
            let found = faults(masked(url), "openai", stored);
            assert!(found.len() == 1 && found[0].0 == "token", "{found:?}");
        }
    }
}
