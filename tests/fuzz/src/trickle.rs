//! The body of a trickle request.

use serde_json::Value;

use crate::MAX_INPUT;

/// Maximum error response, in bytes: a hundred errors, each with a path and a sentence.
const MAX_REPLY_LENGTH: usize = 128 * 1024;

/// A body of `PATCH /api/offer`.
///
/// # Panics
/// It is rejected with a status other than 400, or with an oversized body.
pub fn trickle(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT {
        return;
    }
    if let Err((status, body)) = control_api::validate_trickle(bytes) {
        assert_eq!(status, 400);
        assert!(body.len() <= MAX_REPLY_LENGTH, "{} bytes", body.len());
        let body: Value = serde_json::from_slice(&body).expect("the answer is JSON");
        assert_eq!(body["error"], "Invalid request body");
    }
}
