//! Signatures of the webhooks of meeting services.

use aws_lc_rs::hmac;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// How far the time of a webhook may be from now, in seconds (Standard Webhooks).
const MAX_AGE_SECONDS: u64 = 300;

/// The key in a secret: base64, which the dashboards of some services show after `whsec_`. `None`
/// if it is not valid, or empty: everybody could sign with an empty key.
fn decode_secret(secret: &str) -> Option<Vec<u8>> {
    let secret = secret.trim();
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()?;
    (!key.is_empty()).then_some(key)
}

/// Whether a secret can verify webhooks.
pub(crate) fn is_secret(secret: &str) -> bool {
    decode_secret(secret).is_some()
}

/// Verifies Attendee's header `X-Webhook-Signature`: the HMAC-SHA256, in base64, of the body
/// serialized anew with sorted keys, without blanks, and without escapes for other scripts. The key
/// is the secret, decoded from base64.
pub(super) fn verify_attendee(secret: &str, headers: &HeaderMap, body: &Value) -> bool {
    let signature = headers.get("x-webhook-signature").and_then(|value| value.to_str().ok());
    let tag = signature.and_then(|signature| STANDARD.decode(signature.trim()).ok());
    let (Some(tag), Some(key)) = (tag, decode_secret(secret)) else { return false };
    let mut signed = String::new();
    write_sorted(body, &mut signed);
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes(), &tag).is_ok()
}

/// Serializes a value like Python's `json.dumps(value, sort_keys=True, ensure_ascii=False,
/// separators=(",", ":"))`.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (i, (name, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_sorted(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_sorted(item, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Verifies the headers of Standard Webhooks, under their own names (`webhook-…`) or those of Svix
/// (`svix-…`). `now`: wall clock, in seconds.
pub(super) fn verify_standard(secret: &str, headers: &HeaderMap, body: &[u8], now: i64) -> bool {
    let header = |name: &str| {
        ["webhook", "svix"].iter().find_map(|prefix| {
            headers.get(format!("{prefix}-{name}")).and_then(|value| value.to_str().ok())
        })
    };
    let (Some(id), Some(time), Some(signatures)) =
        (header("id"), header("timestamp"), header("signature"))
    else {
        return false;
    };
    let age = |at: i64| now.checked_sub(at).map_or(u64::MAX, i64::unsigned_abs);
    let is_recent = time.parse().is_ok_and(|at| age(at) <= MAX_AGE_SECONDS);
    let Some(key) = decode_secret(secret) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    is_recent
        && signatures.split(' ').filter_map(|one| one.strip_prefix("v1,")).any(|one| {
            STANDARD.decode(one).is_ok_and(|tag| hmac::verify(&key, &signed, &tag).is_ok())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_secret_is_a_key_in_base64() {
        for secret in ["c2VjcmV0", " whsec_c2VjcmV0\n"] {
            assert!(is_secret(secret), "{secret:?}");
        }
        for secret in ["%%%", "not base64", "whsec_", "", "whsec_%"] {
            assert!(!is_secret(secret), "{secret:?}");
        }
    }

    #[test]
    fn the_signature_of_attendee_covers_the_sorted_body() {
        let body: Value =
            serde_json::from_str(r#"{ "b": [1, {"z": "é\n\u0001", "a": null}], "a": 1.5 }"#)
                .unwrap();
        let mut sorted = String::new();
        write_sorted(&body, &mut sorted);
        assert_eq!(sorted, "{\"a\":1.5,\"b\":[1,{\"a\":null,\"z\":\"é\\n\\u0001\"}]}");
        // Computed with Python: base64(hmac(b"secret", sorted.encode(), sha256)).
        let signed = headers(&[("x-webhook-signature", ATTENDEE_SIGNATURE)]);
        assert!(verify_attendee("c2VjcmV0", &signed, &body));
        assert!(!verify_attendee("b3RoZXI=", &signed, &body));
        assert!(!verify_attendee("c2VjcmV0", &signed, &json!({"a": 1.5})));
        assert!(!verify_attendee("c2VjcmV0", &HeaderMap::new(), &body));
        assert!(!verify_attendee("not base64", &signed, &body));
    }

    const ATTENDEE_SIGNATURE: &str = "xxnIvhRwX4qBjZiRFxODHLLeIy4R4o7z6uB3gJB+z1M=";

    #[test]
    fn a_standard_signature_is_that_of_the_specification_s_example() {
        let (secret, body) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", br#"{"test": 2432232314}"#);
        let signature = "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let (id, at) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330");
        for prefix in [
            ["webhook-id", "webhook-timestamp", "webhook-signature"],
            ["svix-id", "svix-timestamp", "svix-signature"],
        ] {
            let signed = headers(&[(prefix[0], id), (prefix[1], at), (prefix[2], signature)]);
            assert!(verify_standard(secret, &signed, body, 1_614_265_331));
            assert!(!verify_standard(secret, &signed, body, 1_614_265_331 + 600), "too old");
            assert!(!verify_standard(secret, &signed, b"{}", 1_614_265_331));
            assert!(!verify_standard("whsec_AAAA", &signed, body, 1_614_265_331));
        }
        assert!(!verify_standard(secret, &HeaderMap::new(), body, 1_614_265_331));
    }
}
