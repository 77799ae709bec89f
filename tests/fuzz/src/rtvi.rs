//! A text message of the data channel.

use conversation::input::{Command, MAX_TEXT_CHARS};
use engine::transport::client_messages::{ClientInbox, ClientMessage, decode};
use serde_json::Value;

use crate::MAX_INPUT;

/// Maximum response to an invalid message, in bytes: an id and a name, each escaped.
const MAX_REPLY_LENGTH: usize = 2_048;

/// A text message.
///
/// # Panics
/// An error response is not a valid message or is too long; or the text of a command exceeds its
/// limit.
pub fn rtvi(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if bytes.len() > MAX_INPUT {
        return;
    }
    let now = engine::clock::now();
    let decoded = decode(text);
    assert_eq!(ClientInbox::new(now).read(now, text), decoded, "the limit is not reached");
    match decoded {
        Err(answer) => {
            assert!(answer.len() <= MAX_REPLY_LENGTH, "{answer}");
            let answer: Value = serde_json::from_str(&answer).expect("the answer is JSON");
            assert_eq!(answer["label"], "rtvi-ai");
            assert!(
                matches!(answer["type"].as_str(), Some("error" | "error-response")),
                "{answer}"
            );
            assert_ne!(answer["data"]["fatal"], true, "{answer}");
        }
        Ok(Some(ClientMessage::Commands { commands, .. })) => {
            assert!(!commands.is_empty());
            for command in commands {
                if let Command::Respond { text } | Command::Context { text, .. } = command {
                    assert!(
                        (1..=MAX_TEXT_CHARS).contains(&text.chars().count()),
                        "{} characters",
                        text.chars().count()
                    );
                }
            }
        }
        Ok(_) => {}
    }
}
