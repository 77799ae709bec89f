//! Datagrams of a connected client: RTP, RTCP, SRTP, SCTP, and their content.

use std::time::Duration;

use engine::hear::decode::Decoder;
use engine::hear::jitter::JitterBuffer;
use engine::transport::TransportEvent;
use engine::transport::client_messages::ClientInbox;
use engine::transport::webrtc::Protocol;

use crate::MAX_INPUT;
use crate::harness::{Harness, client_addresses};
use crate::steps::{corrupt, parse_steps};

/// Maximum number of steps of one input.
const MAX_STEPS: usize = 400;
/// Maximum number of frames of one pull: the content of the buffer, and the gaps between.
const MAX_FRAMES: usize = 10_000;

/// The receiving side of a call: jitter buffer, decoder, and inbox of messages.
struct AudioReceiver {
    jitter_buffer: JitterBuffer,
    decoder: Decoder,
    inbox: ClientInbox,
    pcm: Vec<i16>,
    packets: usize,
}

impl AudioReceiver {
    fn process_events(&mut self, harness: &mut Harness) {
        for event in harness.events.drain(..) {
            match event {
                TransportEvent::Audio { sequence, timestamp, payload } => {
                    assert!(!payload.is_empty(), "an empty packet contains no audio");
                    self.packets += 1;
                    self.jitter_buffer.push(harness.now, sequence, timestamp, payload);
                }
                TransportEvent::Text(text) => drop(self.inbox.read(harness.now, &text)),
                _ => {}
            }
        }
        for frames in 0.. {
            assert!(frames < MAX_FRAMES, "the buffer returns endless frames");
            let Some(frame) = self.jitter_buffer.pull(harness.now) else { break };
            self.pcm.clear();
            self.decoder.decode(&frame, &mut self.pcm);
            assert_eq!(self.pcm.len(), (frame.samples as usize / 3).min(1_920), "{frame:?}");
        }
    }
}

/// Steps of a connected client. Kinds:
///
/// - 0: these bytes from the client's address
/// - 1: RTP, encrypted with the valid key
/// - 2: the client's next datagram, damaged by [`corrupt`]
/// - 3: these bytes as a text message on its data channel
/// - 4: this number of milliseconds passes
/// - 5: these bytes as a binary message on its data channel
///
/// The first eight bytes of kind 1 are: a jump of the sequence number (two, signed), a jump of the
/// timestamp (four, signed), flags (1 = marker, 2 = header extensions), and the audio level. The
/// rest is the payload.
///
/// # Panics
/// The call no longer receives audio although only forged RTP and RTCP arrived; or the receiving
/// side fails.
pub fn rtp(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT {
        return;
    }
    let mut harness = Harness::connected();
    let mut receiver = AudioReceiver {
        jitter_buffer: JitterBuffer::default(),
        decoder: Decoder::new().expect("a decoder"),
        inbox: ClientInbox::new(harness.now),
        pcm: Vec::new(),
        packets: 0,
    };
    let client = client_addresses()[0];
    let (mut sequence, mut timestamp, mut only_forged) = (1_000_u64, 48_000_u32, true);
    for step in parse_steps(bytes, MAX_STEPS) {
        match step.kind % 6 {
            0 => {
                only_forged &= is_rtp(step.bytes);
                harness.deliver(Protocol::Udp, client, step.bytes);
            }
            1 => {
                only_forged = false;
                let [a, b, c, d, e, f, flags, level, payload @ ..] = step.bytes else { continue };
                sequence =
                    sequence.saturating_add_signed(i64::from(i16::from_be_bytes([*a, *b])) + 1);
                timestamp = timestamp
                    .wrapping_add_signed(i32::from_be_bytes([*c, *d, *e, *f]).wrapping_add(960));
                let level = (flags & 2 != 0).then_some(-i8::try_from(level & 0x7f).unwrap_or(0));
                harness.send_rtp(sequence, timestamp, flags & 1 != 0, level, payload);
                deliver_all(&mut harness);
            }
            2 => {
                let Some(mut datagram) = harness.next_datagram() else { continue };
                corrupt(&mut datagram, step.bytes);
                only_forged &= is_rtp(&datagram);
                harness.deliver(Protocol::Udp, client, &datagram);
            }
            4 => {
                harness.advance(Duration::from_millis(u64::from(
                    step.bytes.first().copied().unwrap_or(1),
                )));
                deliver_all(&mut harness);
            }
            kind => {
                only_forged = false;
                harness.send_text(step.bytes, kind == 5);
                deliver_all(&mut harness);
            }
        }
        receiver.process_events(&mut harness);
    }
    if only_forged {
        let before = receiver.packets;
        harness.send_rtp(
            sequence + 1,
            timestamp.wrapping_add(960),
            false,
            None,
            &[0xf8, 0xff, 0xfe],
        );
        deliver_all(&mut harness);
        receiver.process_events(&mut harness);
        assert!(
            receiver.packets > before,
            "a call receives no audio after packets that anyone can forge"
        );
    }
}

/// Whether the datagram is classified as RTP or RTCP, not as STUN, DTLS or TURN (RFC 7983).
fn is_rtp(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| (128..=191).contains(first))
}

fn deliver_all(harness: &mut Harness) {
    while let Some(datagram) = harness.next_datagram() {
        harness.deliver(Protocol::Udp, client_addresses()[0], &datagram);
    }
}
