//! Headers of outgoing requests as a client configures them. Names are returned by the API; values
//! are secrets.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue};
use egress::FRAMING_HEADERS;
use serde_json::{Map, Value};

use crate::http::validate::FieldErrors;
use crate::store::headers::Headers;
use crate::store::secrets::SECRET_MASK;

/// Values of secret headers, by name.
pub(crate) type SecretHeaders = BTreeMap<String, String>;

/// Moves the values out and leaves their masks. `previous` holds the values of the record that is
/// replaced: `***` retains one. Faults are reported below `path`.
pub(crate) fn take_values(
    headers: &mut Headers,
    path: &str,
    previous: Option<&SecretHeaders>,
    errors: &FieldErrors,
) -> SecretHeaders {
    let (mut masked, mut secrets) = (Map::new(), SecretHeaders::new());
    for (name, value) in std::mem::take(&mut headers.0) {
        let Value::String(value) = value else { continue };
        let value = if value == SECRET_MASK {
            previous.and_then(|o| o.get(&name).cloned())
        } else {
            Some(value)
        };
        let Some(value) = value else { continue };
        let header = HeaderName::try_from(name.as_str());
        let reason = match (&header, HeaderValue::try_from(value.as_str())) {
            (Ok(header), Ok(_)) if FRAMING_HEADERS.contains(&header.as_str()) => {
                Some("is set by the request itself")
            }
            (Ok(_), Ok(_)) => None,
            _ => Some("is not a valid header"),
        };
        if let Some(reason) = reason {
            errors.add(format!("{path}.{name}"), reason);
            continue;
        }
        masked.insert(name.clone(), SECRET_MASK.into());
        secrets.insert(name, value);
    }
    headers.0 = masked;
    secrets
}
