//! An SDP offer.

use engine::transport::webrtc::{AcceptError, PeerConnection};

use crate::LONGEST;
use crate::client::{certificate, local};

/// An offer, and the same offer again as a renegotiation.
///
/// # Panics
/// The answer does not match the offer, or an error message contains a memory address.
pub fn sdp(bytes: &[u8]) {
    // The signaling endpoints reject a body that is not UTF-8.
    let Ok(offer) = std::str::from_utf8(bytes) else { return };
    if bytes.len() > LONGEST {
        return;
    }
    let now = engine::clock::now();
    match PeerConnection::accept(offer, &local(), certificate(), now) {
        Ok((mut connection, answer)) => {
            judge(offer, &answer);
            assert!(answer.contains(&format!("a=ice-ufrag:{}", connection.ufrag())), "{answer}");
            match connection.renegotiate(offer, now) {
                Ok(answer) => judge(offer, &answer),
                Err(refused) => told(&refused),
            }
            let mut sent = 0;
            while connection.poll(now, &mut |_| sent += 1).is_some() {}
            assert_eq!(sent, 0, "nobody has asked yet");
        }
        Err(refused) => told(&refused),
    }
}

fn sections(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("m=")).count()
}

fn judge(offer: &str, answer: &str) {
    assert!(answer.starts_with("v=0\r\n") && answer.ends_with("\r\n"), "{answer}");
    assert_eq!(sections(answer), sections(offer), "{answer}");
    assert!(answer.contains("a=candidate:") && answer.contains("a=fingerprint:"), "{answer}");
}

fn told(refused: &AcceptError) {
    let text = refused.to_string();
    assert!(!text.is_empty() && !text.contains("0x"), "{text}");
}
