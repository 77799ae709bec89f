//! A second str0m as the client, both without sockets, in virtual time.

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

/// Both ends and the network between them.
struct Harness {
    now: Instant,
    start: Instant,
    server: PeerConnection,
    client: Rtc,
    in_flight: VecDeque<Packet>,
    /// Returns true for a packet that gets lost: its number since the connection was up, whether it goes to the server, its bytes.
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

/// A client and its offer: audio, then the videos, then a channel.
pub(crate) fn client_with_offer(
    now: Instant,
    videos: &[Direction],
) -> (Rtc, String, str0m::change::SdpPendingOffer, Mid) {
    let mut client = Rtc::builder().set_dtls_cert(certificate().0).set_reordering_size_audio(0).build(now);
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
        client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
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
        let mut world = Self::new();
        world.run_until(|world| {
            let open = world.client_events.iter().any(|e| matches!(e, str0m::Event::ChannelOpen(..)));
            open && world.server_events.iter().any(|e| matches!(e, TransportEvent::ChannelOpen))
        });
        assert!(world.server_events.iter().any(|e| matches!(e, TransportEvent::Connected)));
        world
    }

    fn drain(&mut self) {
        let (now, wire, lose) = (self.now, &mut self.in_flight, &mut self.drop_packet);
        let mut put = |to_server, data: Vec<u8>| {
            let packet = Packet { at: now + NETWORK_DELAY, to_server, data };
            if !lose(&packet) {
                wire.push_back(packet);
            }
        };
        while let Some(event) = self.server.poll(now, &mut |t: Transmit| put(false, t.contents.to_vec())) {
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

    /// One millisecond passes.
    fn step(&mut self) {
        self.drain();
        self.now += Duration::from_millis(1);
        while self.in_flight.front().is_some_and(|packet| packet.at <= self.now) {
            let packet = self.in_flight.pop_front().unwrap();
            let (client, server) = (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
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
        panic!("it never happened: {:?} {:?}", self.server_events, self.client_events.len());
    }

    /// Milliseconds since the beginning.
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
        let text =
            |e: &TransportEvent| if let TransportEvent::Text(text) = e { Some(text.clone()) } else { None };
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

/// What a VP8 decoder would take for a key frame, or for another one.
fn vp8_frame(key: bool, n: u8, len: usize) -> VideoFrame {
    let mut data = vec![n; len];
    data[0] = if key { 0x10 } else { 0x11 };
    data[3..10].copy_from_slice(&[0x9d, 0x01, 0x2a, 0, 2, 0, 2]);
    VideoFrame { payload: data.into(), is_key_frame: key, base_layer: false }
}

#[test]
fn a_call_connects_and_everything_flows_both_ways() {
    let mut world = Harness::connected();
    assert!(world.elapsed() < 300, "{} ms", world.elapsed());
    assert!(world.server.has_video());
    world.client_sends_text("hello");
    world.server.send_text(world.now, "welcome");
    for n in 0..50 {
        world.client_sends_audio(n);
        let stamp = world.elapsed();
        world.server.send_audio(world.now, stamp * 48, n == 0, &[0xf8, n as u8]);
        world.server.send_video(world.now, stamp * 90, &vp8_frame(n == 0, n as u8, 3000));
        world.run(20);
    }
    world.run(100);
    let heard: Vec<u8> = world
        .server_events
        .iter()
        .filter_map(|e| if let TransportEvent::Audio { payload, .. } = e { Some(payload[1]) } else { None })
        .collect();
    assert_eq!(heard, (0..50).collect::<Vec<_>>());
    let stamps: Vec<u64> = world
        .server_events
        .iter()
        .filter_map(|e| if let TransportEvent::Audio { timestamp, .. } = e { Some(*timestamp) } else { None })
        .collect();
    assert!(stamps.windows(2).all(|pair| pair[1] - pair[0] == 960));
    let sounds: Vec<u8> = world.media(true).iter().map(|d| d.data[1]).collect();
    assert_eq!(sounds, (0..50).collect::<Vec<_>>());
    let pictures = world.media(false);
    assert_eq!(pictures.len(), 50);
    for (n, data) in pictures.iter().enumerate() {
        assert_eq!(data.data[..], vp8_frame(n == 0, n as u8, 3000).payload[..]);
    }
    assert_eq!(world.texts(), ["hello"]);
    assert_eq!(world.client_texts(), ["welcome"]);
    assert!(world.server.last_heard().is_some());
}

#[test]
fn packets_that_arrive_together_are_all_heard() {
    let mut world = Harness::connected();
    for burst in 0..20 {
        // Two to five packets leave at once, and no poll is between their arrivals.
        let packets = 2 + burst % 4;
        for n in 0..packets {
            world.client_sends_audio(burst * 5 + n);
            world.drain();
        }
        world.run(20 * packets);
    }
    let heard: Vec<u8> = world
        .server_events
        .iter()
        .filter_map(|e| if let TransportEvent::Audio { payload, .. } = e { Some(payload[1]) } else { None })
        .collect();
    let sent: Vec<u8> = (0..20).flat_map(|burst| (0..2 + burst % 4).map(move |n| burst * 5 + n)).collect();
    assert_eq!(heard, sent);
}

#[test]
fn the_sender_reports_tie_both_tracks_to_one_clock_from_the_first_on() {
    let mut world = Harness::connected();
    // Nothing is sent for a while: no report may tie RTP time zero to the clock.
    world.run(2_500);
    for n in 0..200 {
        let stamp = world.elapsed() + 3_600_000;
        world.server.send_audio(world.now, stamp * 48, false, &[0xf8, 1]);
        // Pictures are written 40 ms before their time.
        world.server.send_video(world.now, (stamp + 40) * 90, &vp8_frame(n == 0, 0, 100));
        world.run(20);
    }
    let relation = |audio: bool, rate: f64| -> Vec<f64> {
        let first = world.media(audio)[0];
        let lead = if audio { 0.0 } else { 0.04 };
        let told = world.media(audio).into_iter().filter_map(move |data| {
            let info = data.last_sender_info?;
            let wall = info.ntp_time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
            // Media time since the first packet, whose own media time was `lead` ahead of the voice's.
            let media = (info.rtp_time.numer() as u32).wrapping_sub(first.time.numer() as u32) as i32;
            Some(wall - (f64::from(media) / rate + lead))
        });
        told.collect()
    };
    let (voice, face) = (relation(true, 48_000.0), relation(false, 90_000.0));
    assert!(voice.len() > 100 && face.len() > 100, "{} {}", voice.len(), face.len());
    for value in voice.iter().chain(&face) {
        assert!((value - voice[0]).abs() < 0.001, "{value} {}", voice[0]);
    }
}

#[test]
fn lost_packets_of_a_key_frame_are_sent_again_and_a_lost_cached_frame_is_not() {
    let mut world = Harness::connected();
    let sent = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = sent.clone();
    // RTP of more than 900 bytes is video here; packets 2, 5 and 9 of the key frame are lost, and the first cached frame.
    world.drop_packet = Box::new(move |packet| {
        let video = !packet.to_server && packet.data[0] & 0xc0 == 0x80 && packet.data.len() > 900;
        count.set(count.get() + u32::from(video));
        video && [2, 5, 9, 20].contains(&count.get())
    });
    world.server.send_video(world.now, 0, &vp8_frame(true, 1, 17_000));
    world.run(300);
    assert_eq!(sent.get(), 16 + 3);
    for n in 2..100_u8 {
        // This client, unlike a browser, shows nothing after a lost frame before the next one of layer 0.
        let frame = VideoFrame { base_layer: n == 10, ..vp8_frame(false, n, 950) };
        world.server.send_video(world.now, u64::from(n) * 3600, &frame);
        world.run(40);
    }
    assert_eq!(sent.get(), 16 + 3 + 98, "nothing else was sent again");
    let pictures: Vec<(u8, usize)> = world.media(false).iter().map(|d| (d.data[20], d.data.len())).collect();
    assert_eq!(pictures[0], (1, 17_000), "the key frame is whole");
    assert!((10..60).all(|n| pictures.contains(&(n, 950))), "{pictures:?}");
}

#[test]
fn a_request_for_a_key_frame_is_told() {
    let mut world = Harness::connected();
    world.server.send_video(world.now, 0, &vp8_frame(true, 1, 500));
    world.run(50);
    let mid = world.media(false)[0].mid;
    world.client.writer(mid).unwrap().request_keyframe(None, str0m::media::KeyframeRequestKind::Pli).unwrap();
    world.run(50);
    assert!(world.server_events.iter().any(|e| matches!(e, TransportEvent::KeyFrameRequested)));
}

#[test]
fn texts_wait_for_the_channel_and_survive_loss() {
    let mut world = Harness::new();
    let mut n = 0_u32;
    world.drop_packet = Box::new(move |_| {
        n += 1;
        n.is_multiple_of(11)
    });
    let long = "x".repeat(20_000);
    world.server.send_text(world.now, "first");
    world.server.send_text(world.now, long.as_str());
    world.run_until(|world| world.client_texts().len() == 2);
    assert_eq!(world.client_texts(), ["first", &long]);
    assert_eq!(world.server.dropped_texts(), 0);
}

#[test]
fn what_the_receiver_loses_of_the_voice_is_told_once_it_reports_it() {
    let lost = |world: &Harness| {
        let parts =
            |e: &TransportEvent| if let TransportEvent::PacketLoss(part) = e { Some(*part) } else { None };
        world.server_events.iter().filter_map(parts).fold(0.0, f32::max)
    };
    for (every, expected) in [(u32::MAX, 0.0..0.001), (5, 0.1..0.35)] {
        let mut world = Harness::connected();
        let mut n = 0_u32;
        // RTP and RTCP to the client begin with these bits.
        world.drop_packet = Box::new(move |packet| {
            n += u32::from(!packet.to_server && packet.data[0] >> 6 == 2);
            !packet.to_server && packet.data[0] >> 6 == 2 && n.is_multiple_of(every)
        });
        // A report each five seconds, and only from the second on is it known of how many packets.
        for block in 0..900_u64 {
            world.server.send_audio(world.now, block * 960, block == 0, &[0xfc, 1, 2, 3]);
            world.run(20);
        }
        assert!(
            world.server_events.iter().any(|e| matches!(e, TransportEvent::PacketLoss(_))),
            "nothing was reported"
        );
        assert!(expected.contains(&lost(&world)), "every {every}th packet is lost: {}", lost(&world));
    }
}

#[test]
fn a_text_that_no_channel_takes_holds_up_none_behind_it() {
    let mut world = Harness::new();
    world.server.send_text(world.now, "x".repeat(200_000));
    world.server.send_text(world.now, "after it");
    world.run_until(|world| world.client_texts() == ["after it"]);
    assert_eq!(world.server.dropped_texts(), 1);
}

#[test]
fn a_client_that_opens_no_channel_costs_a_bounded_amount() {
    let mut world = Harness::new();
    for _ in 0..100 {
        world.server.send_text(world.now, "y".repeat(10_000));
    }
    assert!(world.server.send_queue.bytes <= super::super::data_channel_queue::MAX_QUEUED_BYTES);
    assert!(world.server.dropped_texts() > 40);
}

#[test]
fn garbage_changes_nothing() {
    let mut world = Harness::connected();
    let (client, server): (SocketAddr, SocketAddr) =
        (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
    let stranger: SocketAddr = "192.0.2.66:1".parse().unwrap();
    let mut seed = 7_u64;
    for round in 0..3_000 {
        let mut garbage: Vec<u8> = (0..round % 200)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) as u8
            })
            .collect();
        if let Some(first) = garbage.first_mut() {
            // Looks like STUN, DTLS, RTP or RTCP in turn, or like nothing.
            *first = [0, 1, 20, 22, 63, 0x80, 0x81, 0xff][round % 8];
        }
        assert!(!world.server.receive(world.now, Protocol::Udp, stranger, server, &garbage));
        world.server.receive(world.now, Protocol::Udp, client, server, &garbage);
        world.drain();
    }
    assert!(!world.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)));
    let before = world.server_events.len();
    world.client_sends_text("still here");
    world.client_sends_audio(1);
    world.run(100);
    assert_eq!(world.texts(), ["still here"]);
    assert!(world.server_events[before..].iter().any(|e| matches!(e, TransportEvent::Audio { .. })));
}

#[test]
fn a_check_with_a_wrong_password_is_not_ours() {
    let mut world = Harness::new();
    let (client, server): (SocketAddr, SocketAddr) =
        (CLIENT_ADDRESS.parse().unwrap(), SERVER_ADDRESS.parse().unwrap());
    world.drain();
    let check = world.in_flight.iter().find(|packet| packet.to_server).unwrap().data.clone();
    assert!(super::super::socket::stun_ufrag(&check).is_some_and(|ufrag| ufrag == world.server.ufrag()));
    assert!(world.server.accepts_datagram(world.now, Protocol::Udp, client, server, &check));
    let mut forged = check;
    let end = forged.len();
    forged[end - 20] ^= 1;
    assert!(!world.server.accepts_datagram(world.now, Protocol::Udp, client, server, &forged));
    assert!(!world.server.receive(world.now, Protocol::Udp, client, server, &forged));
    assert_eq!(world.server.last_heard(), None);
    assert!(!world.server.receive(
        world.now,
        Protocol::Udp,
        client,
        server,
        &[0x80, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    ));
}

#[test]
fn closing_delivers_the_last_text_and_then_the_end() {
    let mut world = Harness::connected();
    world.server.send_text(world.now, "goodbye");
    world.server.close(world.now);
    world.run_until(|world| world.server.is_closed());
    world.run(50);
    assert_eq!(world.client_texts(), ["goodbye"]);
    assert!(
        !world.client.is_connected()
            || !world.client.is_alive()
            || world.client_events.iter().any(|e| matches!(e, str0m::Event::Closed))
    );
    assert!(
        !world.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)),
        "our own closing is no news"
    );
}

#[test]
fn closing_ends_though_the_client_is_gone() {
    let mut world = Harness::connected();
    world.drop_packet = Box::new(|packet| packet.to_server);
    world.server.send_text(world.now, "goodbye");
    world.server.close(world.now);
    world.run(700);
    assert!(world.server.is_closed());
}

#[test]
fn a_client_that_closes_is_noticed_at_once() {
    let mut world = Harness::connected();
    world.client.close().unwrap();
    world.run(50);
    assert_eq!(world.server_events.iter().filter(|e| matches!(e, TransportEvent::Closed)).count(), 1);
}

#[test]
fn a_client_that_goes_silent_is_not_reported_closed() {
    let mut world = Harness::connected();
    world.drop_packet = Box::new(|_| true);
    world.run(20_000);
    assert!(!world.server_events.iter().any(|e| matches!(e, TransportEvent::Closed)));
    world.drop_packet = Box::new(|_| false);
    world.client_sends_text("back again");
    world.run_until(|world| !world.texts().is_empty());
}

#[test]
fn an_offer_on_a_live_connection_is_answered_and_the_call_goes_on() {
    let mut world = Harness::connected();
    let mut api = world.client.sdp_api();
    api.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
    let (offer, pending) = api.apply().unwrap();
    let ufrag = world.server.ufrag().to_owned();
    let answer = world.server.renegotiate(&offer.to_sdp_string(), world.now).unwrap();
    assert!(answer.contains("a=inactive"), "{answer}");
    world.client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
    assert_eq!(world.server.ufrag(), ufrag);
    world.server.send_audio(world.now, 0, true, &[0xf8, 9]);
    world.server.send_video(world.now, 0, &vp8_frame(true, 1, 500));
    world.run(100);
    assert_eq!((world.media(true).len(), world.media(false).len()), (1, 1));
}

#[test]
fn the_answer_keeps_the_order_of_sections_and_refuses_what_is_not_needed() {
    let now = crate::clock::now();
    let videos = [Direction::SendRecv, Direction::SendOnly];
    let (_, offer, _, _) = client_with_offer(now, &videos);
    let (connection, answer) =
        PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
    let sections: Vec<&str> =
        answer.lines().filter(|l| l.starts_with("m=")).map(|l| l.split(' ').next().unwrap()).collect();
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
    let (other, _) = PeerConnection::accept(&offer, &local_candidates(), &certificate(), now).unwrap();
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
    let refuse = |offer: &str| PeerConnection::accept(offer, &local_candidates(), &certificate(), now).err();
    assert!(matches!(refuse(""), Some(AcceptError::BadSdp(_))));
    for garbage in ["hello", "v=0\r\n\0\u{1}", "v=0\r\nm=audio 9 \r\n", "v=0\r\no=- 1 1 IN IP4"] {
        let said = format!("{:?}", refuse(garbage));
        assert!(!said.contains("0x") && !said.contains("Pointer"), "{said}");
    }
    assert!(matches!(refuse("v=0\r\nm=audio\r\n"), Some(AcceptError::BadSdp(_) | AcceptError::NoOpus)));
    let (_, offer, _, _) = client_with_offer(now, &[Direction::SendRecv]);
    assert_eq!(refuse(&offer.replace("opus", "vorbis")), Some(AcceptError::NoOpus));
    for cut in ["a=ice-ufrag", "a=fingerprint"] {
        let without: String = offer.split_inclusive('\n').filter(|line| !line.starts_with(cut)).collect();
        assert!(matches!(refuse(&without), Some(AcceptError::BadSdp(_))), "{cut}");
    }
    // Cut anywhere, or with any byte changed, it is refused or accepted, and nothing else.
    for n in (0..offer.len()).step_by(11) {
        let _ = refuse(&offer[..n]);
        let mut bytes = offer.clone().into_bytes();
        bytes[n] = b"0 :=x\n"[n % 6];
        let _ = refuse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn tcp_candidates_are_told_as_passive_and_carry_a_call() {
    let now = crate::clock::now();
    let (_, offer, _, _) = client_with_offer(now, &[]);
    let tcp = LocalCandidate { address: "192.0.2.2:7000".parse().unwrap(), protocol: Protocol::Tcp };
    let (_, answer) =
        PeerConnection::accept(&offer, &[local_candidates()[0], tcp], &certificate(), now).unwrap();
    assert!(
        answer.contains(" tcp ") && answer.contains("192.0.2.2 7000 typ host tcptype passive"),
        "{answer}"
    );
}
