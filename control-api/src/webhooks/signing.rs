//! Headers that prove the origin of a webhook (Standard Webhooks 1.0). The body is built where the
//! event is defined.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The four speaking events. They are useless when late, so they get few attempts and are then
/// dropped.
pub(super) fn is_speaking_event(event: &str) -> bool {
    matches!(
        event,
        "agent.started_speaking"
            | "agent.stopped_speaking"
            | "user.started_speaking"
            | "user.stopped_speaking"
    )
}

/// A new `webhook-id`.
pub(crate) fn new_message_id() -> String {
    format!("msg_{}", uuid::Uuid::now_v7().simple())
}

/// `webhook-signature` of one attempt; `None` if `secret` is not of the form `whsec_…`.
pub(crate) fn sign(secret: &str, id: &str, timestamp: i64, body: &str) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification_s_example() {
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            body,
        );
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert_eq!(sign("secret", "", 0, ""), None);
    }
}
