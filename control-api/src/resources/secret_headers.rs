//! Headers of outgoing requests as a client configures them. Names are returned by the API; values
//! are secrets.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue};
use egress::FRAMING_HEADERS;
use serde_json::{Map, Value};

use crate::http::validate::Fields;
use crate::store::secrets::SECRET_MASK;

/// Values of secret headers, by name.
pub(crate) type SecretHeaders = BTreeMap<String, String>;

/// Moves the values out of the field `headers` of `request`. Returns the masked object for the
/// document, and the values. `previous` holds the values of the record that is replaced: `***`
/// retains one.
pub(crate) fn extract(request: &Fields<'_>, previous: Option<&SecretHeaders>) -> (Value, SecretHeaders) {
    let (mut masked, mut secrets) = (Map::new(), SecretHeaders::new());
    for (name, value) in request.object("headers").to_map() {
        let Value::String(value) = value else {
            request.add_error(&format!("headers.{name}"), "must be a string");
            continue;
        };
        let value =
            if value == SECRET_MASK { previous.and_then(|o| o.get(&name).cloned()) } else { Some(value) };
        let Some(value) = value else { continue };
        let header = HeaderName::try_from(name.as_str());
        let reason = match (&header, HeaderValue::try_from(value.as_str())) {
            (Ok(header), Ok(_)) if FRAMING_HEADERS.contains(&header.as_str()) => {
                Some("is set by the request itself")
            }
            (Ok(_), Ok(_)) => None,
            _ => Some("is no valid header"),
        };
        if let Some(reason) = reason {
            request.add_error(&format!("headers.{name}"), reason);
            continue;
        }
        masked.insert(name.clone(), SECRET_MASK.into());
        secrets.insert(name, value);
    }
    (Value::Object(masked), secrets)
}
