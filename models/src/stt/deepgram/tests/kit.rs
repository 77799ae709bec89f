//! Deepgram's side of a connection.

use serde_json::json;

use super::super::*;
use crate::stt::streaming::test_support::{Harness, Peer};

pub(super) use crate::stt::streaming::test_support::CHUNK_SAMPLES;

/// A call with a fallback.
pub(super) async fn start() -> Harness {
    Harness::start(deepgram).await
}

impl Peer {
    /// Receives the audio until the end mark.
    pub(super) async fn finalize(&mut self, chunks: usize) {
        let start = self.audio_bytes;
        assert_eq!(self.text().await, "{\"type\":\"Finalize\"}");
        assert_eq!(self.audio_bytes - start, 2 * chunks * CHUNK_SAMPLES);
    }

    /// Sends results for all audio so far.
    pub(super) async fn send(&mut self, is_final: bool, text: &str) {
        let message = json!({
            "type": "Results", "start": 0.0, "duration": self.audio_bytes as f64 / 32_000.0,
            "is_final": is_final, "from_finalize": is_final,
            "channel": {"alternatives": [{"transcript": text}]},
        });
        self.send_text(message.to_string()).await;
    }
}
