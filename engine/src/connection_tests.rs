//! Tests with packets that arrive in bursts: from a client's Opus to the samples that the VAD
//! receives. A second str0m is the client, in virtual time.

use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaTime};
use str0m::net::Receive;
use str0m::{Input, Output};

use super::*;
use crate::transport::webrtc::tests::{
    CLIENT_ADDRESS, SERVER_ADDRESS, certificate, client_with_offer, local_candidates,
};

/// Number of 20 ms packets that are sent: six seconds.
const PACKET_COUNT: u64 = 300;

/// Packets of a synthetic sound with the harmonics and syllables of a voice.
fn voice_packets() -> Vec<Vec<u8>> {
    let mut encoder = crate::speak::encode::Encoder::new().unwrap();
    let mut phase = 0.0_f32;
    (0..PACKET_COUNT)
        .map(|n| {
            let frame: [i16; 960] = core::array::from_fn(|i| {
                let t = (n * 960 + i as u64) as f32 / 48_000.0;
                phase += (140.0 + 40.0 * (t * 2.3).sin()) / 48_000.0;
                let buzz: f32 = (1..12)
                    .map(|h| (std::f32::consts::TAU * phase * h as f32).sin() / h as f32)
                    .sum();
                (buzz * 5_000.0 * (t * 12.0).sin().abs()) as i16
            });
            encoder.encode(&frame).unwrap().to_vec()
        })
        .collect()
}

/// The audio that the server received.
struct ReceivedVoice {
    pcm: Vec<i16>,
    /// For each 20 ms packet, the time in ms since the start at which its samples were available.
    arrival_ms: Vec<u64>,
    stats: crate::hear::jitter::Stats,
}

/// Sends the voice: packet `n` leaves at 20·n ms and arrives at `arrival(n)` ms. The connection is
/// served every 10 ms, as by a media thread whose calls are past their handshakes. All datagrams
/// that have arrived are received, then the audio is taken, and then the connection is polled.
fn receive_voice(arrival: impl Fn(u64) -> u64) -> ReceivedVoice {
    let start = crate::clock::now();
    let (mut client, offer, pending, audio) = client_with_offer(start, &[]);
    let (server, answer) =
        PeerConnection::accept(&offer, &local_candidates(), &certificate(), start).unwrap();
    client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
    let mut connection = Connection::webrtc(0, server, Decoder::new().unwrap(), None, start);
    let (server_address, client_address) =
        (SERVER_ADDRESS.parse().unwrap(), CLIENT_ADDRESS.parse().unwrap());
    let packets = voice_packets();
    // Datagrams to the server, with their arrival time in ms.
    let mut datagrams: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut started_at, mut sent) = (None, 0);
    let mut found =
        ReceivedVoice { pcm: Vec::new(), arrival_ms: Vec::new(), stats: Default::default() };
    for ms in 0_u64.. {
        let now = start + Duration::from_millis(ms);
        let zero = *started_at.get_or_insert(ms);
        if connection.connected_at.is_none() {
            started_at = None;
        } else if ms == zero + 20 * sent && sent < PACKET_COUNT {
            let writer = client.writer(audio).unwrap();
            let pt = writer.payload_params().find(|p| p.spec().codec == Codec::Opus).unwrap().pt();
            let time = MediaTime::new(sent * 960, Frequency::FORTY_EIGHT_KHZ);
            writer.write(pt, now, time, packets[sent as usize].clone()).unwrap();
            sent += 1;
        } else if ms > zero + 20 * PACKET_COUNT + 500 {
            break;
        }
        let _ = client.handle_input(Input::Timeout(now));
        loop {
            match client.poll_output().unwrap() {
                Output::Transmit(datagram) => {
                    let rtp = datagram.contents[0] & 0xc0 == 0x80
                        && !(200..208).contains(&datagram.contents[1]);
                    datagrams.push((
                        if rtp { zero + arrival(sent - 1) } else { ms + 1 },
                        datagram.contents.to_vec(),
                    ));
                }
                Output::Event(_) => {}
                Output::Timeout(_) => break,
            }
        }
        if connection.connected_at.is_some() && !ms.is_multiple_of(10) {
            continue;
        }
        datagrams.sort_by_key(|(at, _)| *at);
        let arrived = datagrams.partition_point(|(at, _)| *at <= ms);
        for (_, datagram) in datagrams.drain(..arrived) {
            connection.receive(now, Protocol::Udp, client_address, server_address, &datagram);
        }
        let before = found.pcm.len();
        while connection.receive_audio(now, &mut found.pcm, |_, _| {}).is_some() {}
        found
            .arrival_ms
            .extend((before..found.pcm.len()).step_by(SAMPLES_20_MS).map(|_| ms - zero));
        let mut answers = Vec::new();
        while connection.is_due(now)
            && connection.poll(now, &mut |t: Transmit| answers.push(t.contents.to_vec())).is_some()
        {
        }
        for datagram in answers {
            if let Ok(receive) =
                Receive::new(Protocol::Udp, server_address, client_address, &datagram)
            {
                let _ = client.handle_input(Input::Receive(now, receive));
            }
        }
    }
    if let Transport::WebRtc { jitter, .. } = &connection.transport {
        found.stats = jitter.stats();
    }
    found
}

/// Normalized correlation without a time shift.
fn correlation(a: &[i16], b: &[i16]) -> f64 {
    let dot = |a: &[i16], b: &[i16]| {
        a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Asserts that the samples of all packets equal those of evenly sent packets, and arrive at most
/// `late` ms plus two ticks later.
fn assert_heard_as_even(name: &str, late: u64, arrival: impl Fn(u64) -> u64) {
    let (even, found) = (receive_voice(|n| 20 * n + 5), receive_voice(arrival));
    let length = PACKET_COUNT as usize * SAMPLES_20_MS;
    assert!(
        even.pcm.len() >= length && found.pcm.len() >= length,
        "{name}: {} of {length}",
        found.pcm.len()
    );
    let alike = correlation(&even.pcm[..length], &found.pcm[..length]);
    assert!(alike >= 0.98, "{name}: {alike}");
    assert_eq!(found.stats.packets, PACKET_COUNT, "{name}: {:?}", found.stats);
    // No packet follows the last one, so the decoder conceals for a while.
    let filled = found.stats.concealed + found.stats.silent + found.stats.recovered;
    let after = even.stats.concealed + even.stats.silent + even.stats.recovered;
    assert!(filled <= after, "{name}: {:?}, evenly {:?}", found.stats, even.stats);
    let added = (0..PACKET_COUNT as usize)
        .map(|n| found.arrival_ms[n].saturating_sub(even.arrival_ms[n]))
        .max()
        .unwrap();
    assert!(added <= late + 20, "{name}: {added} ms later than evenly sent packets");
}

#[test]
fn a_packet_in_order_is_heard_in_the_tick_that_follows_its_arrival() {
    let found = receive_voice(|n| 20 * n + 5);
    for n in 0..PACKET_COUNT {
        let waited = found.arrival_ms[n as usize] - (20 * n + 5);
        assert!(waited < 10, "packet {n}: {waited} ms");
    }
}

#[test]
fn packets_in_bursts_are_heard_as_evenly_sent_ones() {
    for burst in [2, 3, 5] {
        // All packets of a burst arrive with its last one.
        assert_heard_as_even(&format!("{burst} at once"), 20 * burst, |n| {
            20 * (n / burst * burst + burst - 1) + 5
        });
    }
}

#[test]
fn packets_that_come_at_random_and_in_another_order_are_heard_as_evenly_sent_ones() {
    // 20 to 60 ms late, by SplitMix64.
    let late = |n: u64| {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        20 + (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % 41
    };
    assert!(
        (1..PACKET_COUNT).any(|n| 20 * n + late(n) < 20 * (n - 1) + late(n - 1)),
        "some overtake others"
    );
    assert_heard_as_even("20 to 60 ms late", 60, |n| 20 * n + late(n));
}
