//! An ICE-TCP stream.

use std::time::Duration;

use engine::transport::demux::stun_ufrag;
use engine::transport::tcp::FrameDecoder;
use engine::transport::webrtc::Protocol;

use crate::MAX_INPUT;
use crate::harness::{Harness, client_addresses};

/// The first byte gives the size of the parts in which the rest, the stream, arrives.
///
/// # Panics
/// The frames depend on the size of the parts, or a frame of an unknown client reaches the call.
pub fn tcp(bytes: &[u8]) {
    let Some((chunk_seed, stream)) = bytes.split_first() else { return };
    if bytes.len() > MAX_INPUT {
        return;
    }
    let expected = read_frames(stream, stream.len());
    assert_eq!(
        read_frames(stream, usize::from(*chunk_seed) + 1),
        expected,
        "cut each {} bytes",
        usize::from(*chunk_seed) + 1
    );
    let (found, _) = expected;
    let mut harness = Harness::new();
    for (ufrag, frame) in &found {
        assert_eq!(
            Some(ufrag),
            found.first().map(|(first, _)| first),
            "a stream belongs to one call"
        );
        assert!(frame.len() <= 2_000, "{} bytes", frame.len());
        harness.deliver(Protocol::Tcp, client_addresses()[0], frame);
    }
    // The frames of a real client are decoded in the same way: its first connectivity check, then
    // the rest.
    harness.advance(Duration::from_millis(100));
    let mut sent: Vec<Vec<u8>> = std::iter::from_fn(|| harness.next_datagram()).collect();
    let check = sent.iter().position(|datagram| stun_ufrag(datagram).is_some()).expect("a check");
    sent.swap(0, check);
    let length = |datagram: &[u8]| u16::try_from(datagram.len()).expect("a datagram").to_be_bytes();
    let stream: Vec<u8> = sent.iter().flat_map(|one| [&length(one)[..], one].concat()).collect();
    let (found, still_open) = read_frames(&stream, usize::from(*chunk_seed) + 1);
    assert!(still_open, "the stream of a client is read");
    assert_eq!(found.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>(), sent);
    for frame in sent {
        harness.deliver(Protocol::Tcp, client_addresses()[0], &frame);
    }
}

/// The frames of a stream that arrives in parts of this size, each with its ufrag, and whether the
/// stream is still valid.
fn read_frames(stream: &[u8], chunk_size: usize) -> (Vec<(String, Vec<u8>)>, bool) {
    let (mut frames, mut found) = (FrameDecoder::default(), Vec::new());
    let still_open = stream.chunks(chunk_size.max(1)).all(|bytes| {
        frames.push(bytes, |ufrag, contents| {
            found.push((ufrag.to_owned(), contents.to_vec()));
            true
        })
    });
    (found, still_open)
}
