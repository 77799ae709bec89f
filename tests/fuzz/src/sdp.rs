//! An SDP offer.

use engine::transport::webrtc::{AcceptError, PeerConnection};

use crate::MAX_INPUT;
use crate::harness::{local_candidates, server_certificate};

/// An offer, and the same offer again as a renegotiation.
///
/// # Panics
/// The answer does not match the offer, or an error message contains a memory address.
pub fn sdp(bytes: &[u8]) {
    // The signaling endpoints reject a body that is not UTF-8.
    let Ok(offer) = std::str::from_utf8(bytes) else { return };
    if bytes.len() > MAX_INPUT {
        return;
    }
    let now = engine::clock::now();
    match PeerConnection::accept(offer, &local_candidates(), server_certificate(), now) {
        Ok((mut connection, answer)) => {
            check_answer(offer, &answer);
            assert!(answer.contains(&format!("a=ice-ufrag:{}", connection.ufrag())), "{answer}");
            match connection.renegotiate(offer, now) {
                Ok(answer) => check_answer(offer, &answer),
                Err(refused) => check_rejection(&refused),
            }
            let mut sent = 0;
            while connection.poll(now, &mut |_| sent += 1).is_some() {}
            assert_eq!(sent, 0, "no request has been made yet");
        }
        Err(refused) => check_rejection(&refused),
    }
}

fn count_sections(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("m=")).count()
}

fn check_answer(offer: &str, answer: &str) {
    assert!(answer.starts_with("v=0\r\n") && answer.ends_with("\r\n"), "{answer}");
    assert_eq!(count_sections(answer), count_sections(offer), "{answer}");
    assert!(answer.contains("a=candidate:") && answer.contains("a=fingerprint:"), "{answer}");
}

fn check_rejection(error: &AcceptError) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains("0x"), "{text}");
}
