//! Mutates seeds without a fuzzer, so that the targets also run with the stable compiler. There is
//! no coverage feedback.

use rand::Rng;
use rand::rngs::StdRng;

/// Tokens of SDP, JSON, STUN and RTP, and numbers at their limits.
const TOKENS: [&[u8]; 40] = [
    b"\r\n",
    b"\n",
    b" ",
    b":",
    b"\0",
    b"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n",
    b"m=video 9 UDP/TLS/RTP/SAVPF 96\r\n",
    b"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n",
    b"a=rtpmap:111 opus/48000/2\r\n",
    b"a=mid:0\r\n",
    b"a=group:BUNDLE 0 1\r\n",
    b"a=setup:actpass\r\n",
    b"a=setup:passive\r\n",
    b"a=inactive\r\n",
    b"a=sendrecv\r\n",
    b"a=ssrc:1 cname:x\r\n",
    b"a=ssrc-group:FID 1 2\r\n",
    b"a=simulcast:send 1;2\r\n",
    b"a=rid:1 send\r\n",
    b"a=rtcp-mux\r\n",
    b"a=sctp-port:5000\r\n",
    b"a=max-message-size:0\r\n",
    b"18446744073709551616",
    b"4294967296",
    b"65536",
    b"-1",
    b"1e400",
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"\\u0000",
    b"\\ud800",
    b"\"label\":\"rtvi-ai\",",
    b"\"id\":\"1\",",
    &[0x00, 0x01, 0x00, 0x00, 0x21, 0x12, 0xa4, 0x42],
    &[0x00, 0x06, 0x00, 0x04, b's', b'e', b'e', b'd'],
    &[0x00, 0x08, 0x00, 0x14],
    &[0xbe, 0xde, 0x00, 0x01],
    &[0xff, 0xff],
];
/// Maximum output, in bytes.
const MAX_OUTPUT: usize = 32 * 1024;

/// One of the seeds, changed in one to eight places.
pub fn mutate_seed(random: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = |random: &mut StdRng| seeds.get(random.random_range(0..seeds.len().max(1)));
    let mut bytes = seed(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=8) {
        let at = random.random_range(0..=bytes.len());
        let length = random.random_range(0..=(bytes.len() - at).min(64));
        match random.random_range(0..9) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.random_range(0..8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *[0, 1, 0x7f, 0x80, 0xff, random.random::<u8>()]
                        .get(random.random_range(0..6))
                        .unwrap_or(&0);
                }
            }
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let again = bytes[at..at + length].to_vec();
                let times = random.random_range(1..=4);
                bytes.splice(at..at, again.repeat(times));
            }
            4 => {
                let new: Vec<u8> =
                    (0..random.random_range(1..=16)).map(|_| random.random::<u8>()).collect();
                bytes.splice(at..at, new);
            }
            5 => {
                let token = TOKENS[random.random_range(0..TOKENS.len())];
                let end =
                    if random.random::<bool>() { at } else { (at + token.len()).min(bytes.len()) };
                bytes.splice(at..end, token.iter().copied());
            }
            6 => {
                // A part of another seed.
                let Some(other) = seed(random) else { continue };
                let from = random.random_range(0..=other.len());
                let to = random.random_range(from..=other.len());
                bytes.splice(at..at + length, other[from..to].iter().copied());
            }
            7 => {
                // Replaces a number by another one.
                let digit = |byte: &u8| byte.is_ascii_digit();
                let Some(from) = bytes[at..].iter().position(digit).map(|n| at + n) else {
                    continue;
                };
                let to = bytes[from..]
                    .iter()
                    .position(|byte| !digit(byte))
                    .map_or(bytes.len(), |n| from + n);
                let value = random.random::<u64>() >> random.random_range(0..64);
                bytes.splice(from..to, value.to_string().bytes());
            }
            _ => bytes.truncate(at.max(1)),
        }
        bytes.truncate(MAX_OUTPUT);
    }
    bytes
}
