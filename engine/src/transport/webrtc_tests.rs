//! A second str0m acts as the client. Both run without sockets, in virtual time.

use std::collections::VecDeque;

use str0m::change::SdpAnswer;
use str0m::media::{MediaData, MediaTime};

use super::*;

pub(crate) const CLIENT_ADDRESS: &str = "192.0.2.1:5000";
pub(crate) const SERVER_ADDRESS: &str = "192.0.2.2:6000";
const NETWORK_DELAY: Duration = Duration::from_millis(10);

struct Packet {
    at: Instant,
    to_server: bool,
    data: Vec<u8>,
}

/// Both peers and the network between them.
struct Harness {
    now: Instant,
    start: Instant,
    server: PeerConnection,
    client: Rtc,
    in_flight: VecDeque<Packet>,
    /// Returns true if the network loses the packet.
    drop_packet: Box<dyn FnMut(&Packet) -> bool>,
    server_events: Vec<TransportEvent>,
    client_events: Vec<str0m::Event>,
    audio_mid: Option<Mid>,
}

pub(crate) fn certificate() -> Certificate {
    static CERTIFICATE: std::sync::OnceLock<Certificate> = std::sync::OnceLock::new();
    CERTIFICATE.get_or_init(|| Certificate::generate().unwrap()).clone()
}

pub(crate) fn local_candidates() -> [LocalCandidate; 1] {
    [LocalCandidate { address: SERVER_ADDRESS.parse().unwrap(), protocol: Protocol::Udp }]
}

/// A client and its offer: audio, then the video sections, then a data channel.
pub(crate) fn client_with_offer(
    now: Instant,
    videos: &[Direction],
) -> (Rtc, String, str0m::change::SdpPendingOffer, Mid) {
    let mut client =
        Rtc::builder().set_dtls_cert(certificate().0).set_reordering_size_audio(0).build(now);
    client.add_local_candidate(Candidate::host(CLIENT_ADDRESS.parse().unwrap(), "udp").unwrap());
    let mut api = client.sdp_api();
    let audio = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
    for direction in videos {
        api.add_media(MediaKind::Video, *direction, None, None, None);
    }
    api.add_channel("chat".into());
    let (offer, pending) = api.apply().unwrap();
    (client, offer.to_sdp_string(), pending, audio)
}

impl Harness {
    fn new() -> Self {
        let now = crate::clock::now();
        let (mut client, offer, pending, audio) = client_with_offer(now, &[Direction::SendRecv]);
        let (server, answer) =
            PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
        client
            .sdp_api()
            .accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap())
            .unwrap();
        Self {
            now,
            start: now,
            server,
            client,
            in_flight: VecDeque::new(),
            drop_packet: Box::new(|_| false),
            server_events: Vec::new(),
            client_events: Vec::new(),
            audio_mid: Some(audio),
        }
    }

    fn connected() -> Self {
        let mut harness = Self::new();
        harness.run_until(|harness| {
            let open =
                harness.client_events.iter().any(|e| matches!(e, str0m::Event::ChannelOpen(..)));
            open && harness.server_events.iter().any(|e| matches!(e, TransportEvent::ChannelOpen))
        });
        assert!(harness.server_events.iter().any(|e| matches!(e, TransportEvent::Connected)));
        harness
    }

    fn drain(&mut self) {
        let (now, in_flight, drop_packet) = (self.now, &mut self.in_flight, &mut self.drop_packet);
        let mut put = |to_server, data: Vec<u8>| {
            let packet = Packet { at: now + NETWORK_DELAY, to_server, data };
            if !drop_packet(&packet) {
                in_flight.push_back(packet);
            }
        };
        while let Some(event) =
            self.server.poll(now, &mut |t: Transmit| put(false, t.contents.to_vec()))
        {
            self.server_events.push(event);
        }
        assert!(self.server.timeout() > now);
        loop {
            match self.client.poll_output() {
                Ok(Output::Transmit(t)) => put(true, t.contents.to_vec()),
                Ok(Output::Event(event)) => self.client_events.push(event),
                Ok(Output::Timeout(at)) if at <= now && self.client.is_alive() => {
                    self.client.handle_input(Input::Timeout(now)).unwrap();
                }
                _ => break,
            }
        }
    }

    /// Advances time by one millisecond.
    fn step(&mut self) {
        self.drain();
        self.now += Duration::from_millis(1);
        while self.in_flight.front().is_some_and(|packet| packet.at <= self.now) {
            let packet = self.in_flight.pop_front().unwrap();
            let (client, server) =
                (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
            if packet.to_server {
                self.server.receive(self.now, Protocol::Udp, client, server, &packet.data);
            } else if let Ok(receive) = Receive::new(Protocol::Udp, server, client, &packet.data) {
                let _ = self.client.handle_input(Input::Receive(self.now, receive));
            }
        }
        if self.server.timeout() <= self.now {
            self.server.handle_timeout(self.now);
        }
        let _ = self.client.handle_input(Input::Timeout(self.now));
        self.drain();
    }

    fn run(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.step());
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!(
            "the condition was never met: {:?} {:?}",
            self.server_events,
            self.client_events.len()
        );
    }

    /// Milliseconds since the start.
    fn elapsed(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    fn media(&self, audio: bool) -> Vec<&MediaData> {
        let wanted = |data: &&MediaData| (Some(data.mid) == self.audio_mid) == audio;
        self.client_events
            .iter()
            .filter_map(|e| if let str0m::Event::MediaData(d) = e { Some(d) } else { None })
            .filter(wanted)
            .collect()
    }

    fn texts(&self) -> Vec<String> {
        let text = |e: &TransportEvent| {
            if let TransportEvent::Text(text) = e { Some(text.clone()) } else { None }
        };
        self.server_events.iter().filter_map(text).collect()
    }

    fn client_texts(&self) -> Vec<String> {
        let text = |e: &str0m::Event| match e {
            str0m::Event::ChannelData(data) => Some(String::from_utf8(data.data.clone()).unwrap()),
            _ => None,
        };
        self.client_events.iter().filter_map(text).collect()
    }

    fn client_sends_text(&mut self, text: &str) {
        let id = self
            .client_events
            .iter()
            .find_map(|e| if let str0m::Event::ChannelOpen(id, _) = e { Some(*id) } else { None });
        assert!(self.client.channel(id.unwrap()).unwrap().write(false, text.as_bytes()).unwrap());
    }

    fn client_sends_audio(&mut self, n: u64) {
        let (audio, now) = (self.audio_mid.unwrap(), self.now);
        let writer = self.client.writer(audio).unwrap();
        let pt = writer.payload_params().find(|p| p.spec().codec == Codec::Opus).unwrap().pt();
        let time = MediaTime::new(n * 960, Frequency::FORTY_EIGHT_KHZ);
        writer.write(pt, now, time, vec![0xf8, n as u8, 3]).unwrap();
    }
}

/// A frame that a VP8 decoder accepts as a key frame, or as an interframe.
fn vp8_frame(key: bool, n: u8, len: usize) -> VideoFrame {
    let mut data = vec![n; len];
    data[0] = if key { 0x10 } else { 0x11 };
    data[3..10].copy_from_slice(&[0x9d, 0x01, 0x2a, 0, 2, 0, 2]);
    VideoFrame { payload: data.into(), is_key_frame: key, base_layer: false }
}

#[test]
fn a_call_connects_and_everything_flows_both_ways() {
    let mut harness = Harness::connected();
    assert!(harness.elapsed() < 300, "{} ms", harness.elapsed());
    assert!(harness.server.has_video());
    harness.client_sends_text("hello");
    harness.server.send_text(harness.now, "welcome");
    for n in 0..50 {
        harness.client_sends_audio(n);
        let stamp = harness.elapsed();
        harness.server.send_audio(harness.now, stamp * 48, n == 0, &[0xf8, n as u8]);
        harness.server.send_video(harness.now, stamp * 90, &vp8_frame(n == 0, n as u8, 3000));
        harness.run(20);
    }
    harness.run(100);
    let received: Vec<u8> = harness
        .server_events
        .iter()
        .filter_map(|e| {
            if let TransportEvent::Audio { payload, .. } = e { Some(payload[1]) } else { None }
        })
        .collect();
    assert_eq!(received, (0..50).collect::<Vec<_>>());
    let stamps: Vec<u64> = harness
        .server_events
        .iter()
        .filter_map(|e| {
            if let TransportEvent::Audio { timestamp, .. } = e { Some(*timestamp) } else { None }
        })
        .collect();
    assert!(stamps.windows(2).all(|pair| pair[1] - pair[0] == 960));
    let sounds: Vec<u8> = harness.media(true).iter().map(|d| d.data[1]).collect();
    assert_eq!(sounds, (0..50).collect::<Vec<_>>());
    let pictures = harness.media(false);
    assert_eq!(pictures.len(), 50);
    for (n, data) in pictures.iter().enumerate() {
        assert_eq!(data.data[..], vp8_frame(n == 0, n as u8, 3000).payload[..]);
    }
    assert_eq!(harness.texts(), ["hello"]);
    assert_eq!(harness.client_texts(), ["welcome"]);
    assert!(harness.server.last_heard().is_some());
}

#[test]
fn packets_that_arrive_together_are_all_heard() {
    let mut harness = Harness::connected();
    for burst in 0..20 {
        // Two to five packets leave at once, with no poll between their arrivals.
        let packets = 2 + burst % 4;
        for n in 0..packets {
            harness.client_sends_audio(burst * 5 + n);
            harness.drain();
        }
        harness.run(20 * packets);
    }
    let received: Vec<u8> = harness
        .server_events
        .iter()
        .filter_map(|e| {
            if let TransportEvent::Audio { payload, .. } = e { Some(payload[1]) } else { None }
        })
        .collect();
    let sent: Vec<u8> =
        (0..20).flat_map(|burst| (0..2 + burst % 4).map(move |n| burst * 5 + n)).collect();
    assert_eq!(received, sent);
}

#[test]
fn the_sender_reports_tie_both_tracks_to_one_clock_from_the_first_on() {
    let mut harness = Harness::connected();
    // Nothing is sent for a while: no report may map RTP time zero to the clock.
    harness.run(2_500);
    for n in 0..200 {
        let stamp = harness.elapsed() + 3_600_000;
        harness.server.send_audio(harness.now, stamp * 48, false, &[0xf8, 1]);
        // Frames are written 40 ms ahead of time.
        harness.server.send_video(harness.now, (stamp + 40) * 90, &vp8_frame(n == 0, 0, 100));
        harness.run(20);
    }
    let relation = |audio: bool, rate: f64| -> Vec<f64> {
        let first = harness.media(audio)[0];
        let lead = if audio { 0.0 } else { 0.04 };
        let clock_offsets = harness.media(audio).into_iter().filter_map(move |data| {
            let info = data.last_sender_info?;
            let wall = info.ntp_time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
            // Media time since the first packet, whose media time was `lead` ahead of the audio's.
            let media =
                (info.rtp_time.numer() as u32).wrapping_sub(first.time.numer() as u32) as i32;
            Some(wall - (f64::from(media) / rate + lead))
        });
        clock_offsets.collect()
    };
    let (voice_offsets, video_offsets) = (relation(true, 48_000.0), relation(false, 90_000.0));
    assert!(
        voice_offsets.len() > 100 && video_offsets.len() > 100,
        "{} {}",
        voice_offsets.len(),
        video_offsets.len()
    );
    for value in voice_offsets.iter().chain(&video_offsets) {
        assert!((value - voice_offsets[0]).abs() < 0.001, "{value} {}", voice_offsets[0]);
    }
}

#[test]
fn lost_packets_of_a_key_frame_are_sent_again_and_a_lost_cached_frame_is_not() {
    let mut harness = Harness::connected();
    let sent = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = sent.clone();
    // Here RTP of more than 900 bytes is video. Packets 2, 5 and 9 of the key frame are lost, and
    // the first cached frame.
    harness.drop_packet = Box::new(move |packet| {
        let video = !packet.to_server && packet.data[0] & 0xc0 == 0x80 && packet.data.len() > 900;
        count.set(count.get() + u32::from(video));
        video && [2, 5, 9, 20].contains(&count.get())
    });
    harness.server.send_video(harness.now, 0, &vp8_frame(true, 1, 17_000));
    harness.run(300);
    assert_eq!(sent.get(), 16 + 3);
    for n in 2..100_u8 {
        // Unlike a browser, this client shows nothing after a lost frame until the next layer-0
        // frame.
        let frame = VideoFrame { base_layer: n == 10, ..vp8_frame(false, n, 950) };
        harness.server.send_video(harness.now, u64::from(n) * 3600, &frame);
        harness.run(40);
    }
    assert_eq!(sent.get(), 16 + 3 + 98, "nothing else was sent again");
    let pictures: Vec<(u8, usize)> =
        harness.media(false).iter().map(|d| (d.data[20], d.data.len())).collect();
    assert_eq!(pictures[0], (1, 17_000), "the key frame is whole");
    assert!((10..60).all(|n| pictures.contains(&(n, 950))), "{pictures:?}");
}

#[test]
fn a_key_frame_request_is_reported() {
    let mut harness = Harness::connected();
    harness.server.send_video(harness.now, 0, &vp8_frame(true, 1, 500));
    harness.run(50);
    let mid = harness.media(false)[0].mid;
    harness
        .client
        .writer(mid)
        .unwrap()
        .request_keyframe(None, str0m::media::KeyframeRequestKind::Pli)
        .unwrap();
    harness.run(50);
    assert!(harness.server_events.iter().any(|e| matches!(e, TransportEvent::KeyFrameRequested)));
}

#[test]
fn texts_wait_for_the_channel_and_survive_loss() {
    let mut harness = Harness::new();
    let mut n = 0_u32;
    harness.drop_packet = Box::new(move |_| {
        n += 1;
        n.is_multiple_of(11)
    });
    let long = "x".repeat(20_000);
    harness.server.send_text(harness.now, "first");
    harness.server.send_text(harness.now, long.as_str());
    harness.run_until(|harness| harness.client_texts().len() == 2);
    assert_eq!(harness.client_texts(), ["first", &long]);
    assert_eq!(harness.server.dropped_texts(), 0);
}

#[test]
fn audio_packet_loss_is_reported_after_a_receiver_report() {
    let lost = |harness: &Harness| {
        let parts = |e: &TransportEvent| {
            if let TransportEvent::PacketLoss(part) = e { Some(*part) } else { None }
        };
        harness.server_events.iter().filter_map(parts).fold(0.0, f32::max)
    };
    for (every, expected) in [(u32::MAX, 0.0..0.001), (5, 0.1..0.35)] {
        let mut harness = Harness::connected();
        let mut n = 0_u32;
        // RTP and RTCP packets to the client start with these bits.
        harness.drop_packet = Box::new(move |packet| {
            n += u32::from(!packet.to_server && packet.data[0] >> 6 == 2);
            !packet.to_server && packet.data[0] >> 6 == 2 && n.is_multiple_of(every)
        });
        // Reports arrive every five seconds. Only from the second report on is the number of
        // packets known.
        for block in 0..900_u64 {
            harness.server.send_audio(harness.now, block * 960, block == 0, &[0xfc, 1, 2, 3]);
            harness.run(20);
        }
        assert!(
            harness.server_events.iter().any(|e| matches!(e, TransportEvent::PacketLoss(_))),
            "nothing was reported"
        );
        assert!(
            expected.contains(&lost(&harness)),
            "every {every}th packet is lost: {}",
            lost(&harness)
        );
    }
}

#[test]
fn a_text_that_no_channel_takes_holds_up_none_behind_it() {
    let mut harness = Harness::new();
    harness.server.send_text(harness.now, "x".repeat(200_000));
    harness.server.send_text(harness.now, "after it");
    harness.run_until(|harness| harness.client_texts() == ["after it"]);
    assert_eq!(harness.server.dropped_texts(), 1);
}

#[test]
fn a_client_that_opens_no_channel_costs_a_bounded_amount() {
    let mut harness = Harness::new();
    for _ in 0..100 {
        harness.server.send_text(harness.now, "y".repeat(10_000));
    }
    assert!(harness.server.send_queue.bytes <= super::super::data_channel_queue::MAX_QUEUED_BYTES);
    assert!(harness.server.dropped_texts() > 40);
}

#[test]
fn garbage_changes_nothing() {
    let mut harness = Harness::connected();
    let (client, server): (SocketAddr, SocketAddr) =
        (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
    let stranger: SocketAddr = "192.0.2.66:1".parse().unwrap();
    let mut seed = 7_u64;
    for round in 0..3_000 {
        let mut garbage: Vec<u8> = (0..round % 200)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) as u8
            })
            .collect();
        if let Some(first) = garbage.first_mut() {
            // The first byte makes it look like STUN, DTLS, RTP, RTCP, or nothing known, in turn.
            *first = [0, 1, 20, 22, 63, 0x80, 0x81, 0xff][round % 8];
        }
        assert!(!harness.server.receive(harness.now, Protocol::Udp, stranger, server, &garbage));
        harness.server.receive(harness.now, Protocol::Udp, client, server, &garbage);
        harness.drain();
    }
    assert!(!harness.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)));
    let before = harness.server_events.len();
    harness.client_sends_text("still here");
    harness.client_sends_audio(1);
    harness.run(100);
    assert_eq!(harness.texts(), ["still here"]);
    assert!(
        harness.server_events[before..].iter().any(|e| matches!(e, TransportEvent::Audio { .. }))
    );
}

#[test]
fn a_check_with_a_wrong_password_is_not_ours() {
    let mut harness = Harness::new();
    let (client, server): (SocketAddr, SocketAddr) =
        (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
    harness.drain();
    let check = harness.in_flight.iter().find(|packet| packet.to_server).unwrap().data.clone();
    assert!(
        super::super::demux::stun_ufrag(&check)
            .is_some_and(|ufrag| ufrag == harness.server.ufrag())
    );
    assert!(harness.server.accepts_datagram(harness.now, Protocol::Udp, client, server, &check));
    let mut forged = check;
    let end = forged.len();
    forged[end - 20] ^= 1;
    assert!(!harness.server.accepts_datagram(harness.now, Protocol::Udp, client, server, &forged));
    assert!(!harness.server.receive(harness.now, Protocol::Udp, client, server, &forged));
    assert_eq!(harness.server.last_heard(), None);
    assert!(!harness.server.receive(
        harness.now,
        Protocol::Udp,
        client,
        server,
        &[0x80, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    ));
}

#[test]
fn closing_delivers_the_last_text_and_then_the_end() {
    let mut harness = Harness::connected();
    harness.server.send_text(harness.now, "goodbye");
    harness.server.close(harness.now);
    harness.run_until(|harness| harness.server.is_closed());
    harness.run(50);
    assert_eq!(harness.client_texts(), ["goodbye"]);
    assert!(
        !harness.client.is_connected()
            || !harness.client.is_alive()
            || harness.client_events.iter().any(|e| matches!(e, str0m::Event::Closed))
    );
    assert!(
        !harness.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)),
        "a close by the server is not reported"
    );
}

#[test]
fn closing_ends_though_the_client_is_gone() {
    let mut harness = Harness::connected();
    harness.drop_packet = Box::new(|packet| packet.to_server);
    harness.server.send_text(harness.now, "goodbye");
    harness.server.close(harness.now);
    harness.run(700);
    assert!(harness.server.is_closed());
}

#[test]
fn a_client_that_closes_is_noticed_at_once() {
    let mut harness = Harness::connected();
    harness.client.close().unwrap();
    harness.run(50);
    assert_eq!(
        harness.server_events.iter().filter(|e| matches!(e, TransportEvent::Closed)).count(),
        1
    );
}

#[test]
fn a_client_that_goes_silent_is_not_reported_closed() {
    let mut harness = Harness::connected();
    harness.drop_packet = Box::new(|_| true);
    harness.run(20_000);
    assert!(!harness.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)));
    harness.drop_packet = Box::new(|_| false);
    harness.client_sends_text("back again");
    harness.run_until(|harness| !harness.texts().is_empty());
}

#[test]
fn an_offer_on_a_live_connection_is_answered_and_the_call_goes_on() {
    let mut harness = Harness::connected();
    let mut api = harness.client.sdp_api();
    api.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
    let (offer, pending) = api.apply().unwrap();
    let ufrag = harness.server.ufrag().to_owned();
    let answer = harness.server.renegotiate(&offer.to_sdp_string(), harness.now).unwrap();
    assert!(answer.contains("a=inactive"), "{answer}");
    harness
        .client
        .sdp_api()
        .accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap())
        .unwrap();
    assert_eq!(harness.server.ufrag(), ufrag);
    harness.server.send_audio(harness.now, 0, true, &[0xf8, 9]);
    harness.server.send_video(harness.now, 0, &vp8_frame(true, 1, 500));
    harness.run(100);
    assert_eq!((harness.media(true).len(), harness.media(false).len()), (1, 1));
}

#[test]
fn the_answer_keeps_the_order_of_sections_and_refuses_what_is_not_needed() {
    let now = crate::clock::now();
    let videos = [Direction::SendRecv, Direction::SendOnly];
    let (_, offer, _, _) = client_with_offer(now, &videos);
    let (connection, answer) =
        PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
    let sections: Vec<&str> = answer
        .lines()
        .filter(|l| l.starts_with("m="))
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    assert_eq!(sections, ["m=audio", "m=video", "m=video", "m=application"]);
    let directions: Vec<&str> = answer
        .lines()
        .filter(|l| ["a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive"].contains(l))
        .collect();
    assert_eq!(directions, ["a=sendrecv", "a=sendonly", "a=inactive"]);
    for wanted in [
        "a=ice-lite",
        "a=max-message-size:65536",
        "a=setup:passive",
        &format!("a=ice-ufrag:{}", connection.ufrag()),
    ] {
        assert!(answer.lines().any(|line| line == wanted), "{wanted} is missing in {answer}");
    }
    assert!(answer.matches("192.0.2.2 6000 typ host").count() >= 3);
    let streams: std::collections::HashSet<&str> = answer
        .lines()
        .filter_map(|l| l.strip_prefix("a=msid:"))
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    assert_eq!(streams.len(), 1);
    assert_eq!(connection.id().len(), 32);
    let (other, _) =
        PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
    assert_ne!(connection.id(), other.id());
}

#[test]
fn an_offer_of_sound_alone_is_enough() {
    let now = crate::clock::now();
    let (_, offer, _, _) = client_with_offer(now, &[]);
    let (mut connection, answer) =
        PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
    assert!(!connection.has_video());
    assert_eq!(answer.matches("m=").count(), 2);
    connection.send_video(now, 0, &vp8_frame(true, 0, 100));
}

#[test]
fn bad_offers_are_told_apart() {
    let now = crate::clock::now();
    let rejection_of =
        |offer: &str| PeerConnection::accept(offer, &local_candidates(), &certificate(), now).err();
    assert!(matches!(rejection_of(""), Some(AcceptError::BadSdp(_))));
    for garbage in ["hello", "v=0\r\n\0\u{1}", "v=0\r\nm=audio 9 \r\n", "v=0\r\no=- 1 1 IN IP4"] {
        let message = format!("{:?}", rejection_of(garbage));
        assert!(!message.contains("0x") && !message.contains("Pointer"), "{message}");
    }
    assert!(matches!(
        rejection_of("v=0\r\nm=audio\r\n"),
        Some(AcceptError::BadSdp(_) | AcceptError::NoOpus)
    ));
    let (_, offer, _, _) = client_with_offer(now, &[Direction::SendRecv]);
    assert_eq!(rejection_of(&offer.replace("opus", "vorbis")), Some(AcceptError::NoOpus));
    for cut in ["a=ice-ufrag", "a=fingerprint"] {
        let without: String =
            offer.split_inclusive('\n').filter(|line| !line.starts_with(cut)).collect();
        assert!(matches!(rejection_of(&without), Some(AcceptError::BadSdp(_))), "{cut}");
    }
    let rtpmap = |codec: &str| offer.lines().find(|line| line.contains(codec)).unwrap();
    let opus = rtpmap(" opus/").split(' ').next().unwrap();
    let both = offer.replace(rtpmap(" VP8/"), &format!("{}\r\n{opus} VP8/90000", rtpmap(" VP8/")));
    let message = format!("{:?}", rejection_of(&both));
    assert!(message.contains("a payload type stands for two codecs"), "{message}");
    // An offer that is truncated, or has any byte changed, is either rejected or accepted; nothing
    // else happens.
    for n in (0..offer.len()).step_by(11) {
        let _ = rejection_of(&offer[..n]);
        let mut bytes = offer.clone().into_bytes();
        bytes[n] = b"0 :=x\n"[n % 6];
        let _ = rejection_of(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn tcp_candidates_are_told_as_passive_and_carry_a_call() {
    let now = crate::clock::now();
    let (_, offer, _, _) = client_with_offer(now, &[]);
    let tcp =
        LocalCandidate { address: "192.0.2.2:7000".parse().unwrap(), protocol: Protocol::Tcp };
    let (_, answer) =
        PeerConnection::accept(&offer, &[local_candidates()[0], tcp], &certificate(), now).unwrap();
    assert!(
        answer.contains(" tcp ") && answer.contains("192.0.2.2 7000 typ host tcptype passive"),
        "{answer}"
    );
}
