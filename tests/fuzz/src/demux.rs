//! Datagrams before a connection is established: routing, STUN and DTLS.

use std::time::Duration;

use engine::transport::webrtc::Protocol;

use crate::MAX_INPUT;
use crate::harness::{Harness, client_addresses};
use crate::steps::{corrupt, parse_steps};

/// Maximum number of steps of one input.
const MAX_STEPS: usize = 200;

/// Steps during the handshakes. Kinds:
///
/// - 0: these bytes from the client's address
/// - 1: these bytes from an unknown address
/// - 2: the client's next datagram
/// - 3: the same, damaged by [`corrupt`]
/// - 4: the same as 2, from the unknown address
/// - 5: this number of milliseconds passes
///
/// # Panics
/// An unknown client's datagram reaches the call, or the server responds to a sender that has
/// proved nothing.
pub fn demux(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT {
        return;
    }
    let mut harness = Harness::new();
    let [client, stranger] = client_addresses();
    for step in parse_steps(bytes, MAX_STEPS) {
        match step.kind % 6 {
            0 => {
                harness.deliver(Protocol::Udp, client, step.bytes);
            }
            1 => {
                harness.deliver(Protocol::Udp, stranger, step.bytes);
            }
            kind @ 2..=4 => {
                let Some(mut datagram) = harness.next_datagram() else { continue };
                if kind == 3 {
                    corrupt(&mut datagram, step.bytes);
                }
                harness.deliver(
                    Protocol::Udp,
                    if kind == 4 { stranger } else { client },
                    &datagram,
                );
            }
            _ => harness.advance(Duration::from_millis(u64::from(
                step.bytes.first().copied().unwrap_or(1),
            ))),
        }
    }
}
