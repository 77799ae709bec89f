//! Tools that are HTTP requests.

use std::collections::HashSet;
use std::time::Duration;

use engine_api::{Tool, ToolBackend};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use url::Url;

/// Maximum duration of a tool's request; after it the tool has failed.
const TOOL_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a response in bytes; the rest is cut off.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// Maximum number of characters of a server's response in an error message.
const MAX_ERROR_CHARS: usize = 200;

/// All but RFC 3986's unreserved characters: an argument never exceeds its part of one path segment
/// or one query value.
const ARGUMENT_ENCODE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Runs a tool with an HTTP backend ([`ToolBackend::Http`]). `arguments` is an object, and so is
/// the result.
///
/// `{name}` in the URL's path and query is the argument of that name, percent-encoded. The other
/// arguments go into the query (GET, DELETE) or the JSON body (POST, PUT, PATCH). A response that
/// is not a JSON object becomes `{"result": …}`; one over 256 KiB is cut and marked as truncated.
///
/// # Errors
/// The reason in one sentence, without secrets: it is the tool's result, passed to the model and
/// recorded.
pub async fn run(client: &egress::Client, tool: &Tool, arguments: Value) -> Result<Value, String> {
    let ToolBackend::Http { method, url, headers } = &tool.backend else {
        return Err("the tool runs in the browser".into());
    };
    let Value::Object(arguments) = arguments else {
        return Err("the arguments are not an object".into());
    };
    let request = build_request(method, url, headers, arguments)?;
    let describe = |error: egress::Error| error.to_string();
    let response = client.send(request).await.map_err(describe)?;
    let (status, success) = (response.status(), response.is_success());
    let body = response.body().await.map_err(describe)?;
    if success {
        return Ok(parse_result(&body));
    }
    let message: String = body.text().split_whitespace().collect::<Vec<_>>().join(" ");
    let message: String =
        redact_secrets(message, url, headers).chars().take(MAX_ERROR_CHARS).collect();
    Err(if message.is_empty() {
        format!("the tool's server returned {status}")
    } else {
        format!("the tool's server returned {status}: {message}")
    })
}

fn build_request(
    method: &str,
    template: &str,
    headers: &[(String, String)],
    arguments: Map<String, Value>,
) -> Result<egress::Request, String> {
    let method = match method.to_ascii_uppercase().as_str() {
        "GET" => egress::Method::GET,
        "POST" => egress::Method::POST,
        "PUT" => egress::Method::PUT,
        "PATCH" => egress::Method::PATCH,
        "DELETE" => egress::Method::DELETE,
        _ => return Err("the tool's method is not one of GET, POST, PUT, PATCH, DELETE".into()),
    };
    let (mut url, used) = fill_url_template(template, &arguments)?;
    let rest: Map<String, Value> =
        arguments.into_iter().filter(|(name, _)| !used.contains(name)).collect();
    let in_query = matches!(method, egress::Method::GET | egress::Method::DELETE);
    if in_query && !rest.is_empty() {
        let mut query = url.query_pairs_mut();
        for (name, value) in &rest {
            match value {
                Value::Null => {}
                Value::Array(values)
                    if values.iter().all(|value| !value.is_object() && !value.is_array()) =>
                {
                    query.extend_pairs(values.iter().map(|value| (name, value_to_text(value))));
                }
                value => {
                    query.append_pair(name, &value_to_text(value));
                }
            }
        }
    }
    let describe = |error: egress::Error| error.to_string();
    let mut request = egress::Request::new(method, url.as_str())
        .map_err(describe)?
        .timeout(Some(TOOL_REQUEST_TIMEOUT))
        .limit(MAX_RESPONSE_BYTES);
    for (name, value) in headers {
        request = request.header(name, value).map_err(describe)?;
    }
    Ok(if in_query { request } else { request.json(Value::Object(rest).to_string()) })
}

/// The URL with its placeholders filled, and the names of the arguments used in it.
fn fill_url_template(
    template: &str,
    arguments: &Map<String, Value>,
) -> Result<(Url, HashSet<String>), String> {
    let template = template.trim();
    let mut url = String::with_capacity(template.len());
    let mut plain = String::with_capacity(template.len());
    let mut used = HashSet::new();
    let mut rest = template;
    while let Some((before, name, after)) = find_placeholder(rest) {
        let value = arguments
            .get(name)
            .filter(|value| !value.is_null())
            .ok_or_else(|| format!("the argument {name:?} is missing"))?;
        url.push_str(before);
        plain.push_str(before);
        url.extend(utf8_percent_encode(&value_to_text(value), ARGUMENT_ENCODE_SET));
        plain.push('x');
        used.insert(name.to_owned());
        rest = after;
    }
    url.push_str(rest);
    plain.push_str(rest);
    let parse = |url: &str| Url::parse(url).map_err(|_| "the tool's URL is not valid".to_owned());
    let (url, plain) = (parse(&url)?, parse(&plain)?);
    if url.origin() != plain.origin()
        || url.username() != plain.username()
        || url.password() != plain.password()
    {
        return Err("an argument must not be part of the tool's host".into());
    }
    // The parser drops dot segments: an argument ".." would escape from its path segment, "." or an
    // empty one would address the collection instead of one item.
    let shape = |url: &Url| url.path().split('/').map(str::is_empty).collect::<Vec<_>>();
    if shape(&url) != shape(&plain) {
        return Err("an argument in the path must not be empty or only dots".into());
    }
    Ok((url, used))
}

/// The first `{name}` of `text`: the text before it, the name, the text after it. Other braces are
/// left unchanged.
fn find_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|i| from + i) {
        let inside = &text[open + 1..];
        let length = inside
            .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.'))
            .unwrap_or(inside.len());
        if length > 0 && inside[length..].starts_with('}') {
            return Some((&text[..open], &inside[..length], &inside[length + 1..]));
        }
        from = open + 1;
    }
    None
}

fn value_to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parse_result(body: &egress::Body) -> Value {
    let text = body.text();
    if body.truncated {
        return json!({"result": text, "truncated": true, "note": "truncated after 256 KiB"});
    }
    match serde_json::from_str(text.trim()) {
        Ok(object @ Value::Object(_)) => object,
        Ok(other) => json!({"result": other}),
        Err(_) if text.trim().is_empty() => json!({"result": null}),
        Err(_) => json!({"result": text}),
    }
}

/// The server's response without the secrets of the tool's headers and URL: some servers echo the
/// request.
fn redact_secrets(text: String, url: &str, headers: &[(String, String)]) -> String {
    let url = Url::parse(url).ok();
    let password = url.as_ref().and_then(|url| url.password().map(str::to_owned));
    let query = url
        .iter()
        .flat_map(|url| url.query_pairs().map(|(_, value)| value.into_owned()).collect::<Vec<_>>());
    let parts = headers.iter().flat_map(|(_, value)| {
        std::iter::once(value.trim()).chain(value.split_whitespace()).map(str::to_owned)
    });
    let mut secrets: Vec<String> =
        parts.chain(query).chain(password).filter(|secret| secret.len() >= 6).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "***"))
}

#[cfg(test)]
mod tests;
