//! A participant and a stand-in for the server: str0m answers its offers, and the test writes the
//! signals.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conversation::event::AgentState;
use engine_api::RoomEnd;
use livekit_protocol as proto;
use prost::Message as _;
use proto::data_packet::Value;
use proto::{ParticipantInfo, TrackInfo, signal_response};
use str0m::change::{SdpAnswer, SdpOffer};
use str0m::channel::ChannelId;
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::sync::mpsc;

mod presence;

use super::room_peer::{Publication, Request, RoomPeer, RoomSignal};
use super::{RequestOrigin, RoomEvent};
use crate::speak::AudioFrame;
use crate::transport::webrtc::Certificate;
use crate::transport::{TransportEvent, VideoFrame};

/// Step of the simulated time.
const STEP: Duration = Duration::from_millis(5);

struct Harness {
    peer: RoomPeer,
    server: Rtc,
    now: Instant,
    requests: mpsc::Receiver<Request>,
    ours: SocketAddr,
    theirs: SocketAddr,
    /// What the agent reported.
    events: Vec<TransportEvent>,
    /// Data packets that the server received, and its side of the reliable channel.
    packets: Vec<proto::DataPacket>,
    channel: Option<ChannelId>,
    audio_packets: usize,
    sequence: u32,
}

impl Harness {
    /// A participant whose first offer is answered.
    fn joined(people: Vec<ParticipantInfo>) -> Self {
        let (ours, theirs) =
            (SocketAddr::from(([127, 0, 0, 1], 9)), SocketAddr::from(([127, 0, 0, 1], 10)));
        let (sender, requests) = mpsc::channel(256);
        let certificate = Certificate::generate().unwrap();
        let now = crate::clock::now();
        let publication = Publication { video: Some((512, 512)), created_unix_ms: 1_000 };
        let (peer, parts) = RoomPeer::new(&[ours], &certificate, publication, sender, now).unwrap();
        let mut server = Rtc::builder()
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(true)
            .build(now);
        server.add_local_candidate(Candidate::host(theirs, "udp").unwrap());
        let mut harness = Self {
            peer,
            server,
            now,
            requests,
            ours,
            theirs,
            events: Vec::new(),
            packets: Vec::new(),
            channel: None,
            audio_packets: 0,
            sequence: 0,
        };
        assert_eq!(parts.tracks.len(), 2);
        let join = proto::JoinResponse {
            participant: Some(agent("PA_us", "agent-1", "1000")),
            other_participants: people,
            ..proto::JoinResponse::default()
        };
        harness.signal(signal_response::Message::Join(join));
        harness.answer(&parts.offer, &[]);
        harness
    }

    fn signal(&mut self, message: signal_response::Message) {
        self.peer.handle_signal(self.now, RoomSignal::Server(Box::new(message)));
    }

    /// Answers an offer as the server does.
    fn answer(&mut self, offer: &proto::SessionDescription, tracks: &[(&str, &str)]) {
        let parsed = SdpOffer::from_sdp_string(&offer.sdp).unwrap();
        let answer: SdpAnswer = self.server.sdp_api().accept_offer(parsed).unwrap();
        let mids = tracks.iter().map(|(mid, track)| ((*mid).to_owned(), (*track).to_owned()));
        self.signal(signal_response::Message::Answer(proto::SessionDescription {
            r#type: "answer".into(),
            sdp: answer.to_sdp_string(),
            id: offer.id,
            mid_to_track_id: mids.collect(),
        }));
    }

    /// Lets time pass.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let mut to_server = Vec::new();
            while let Some(event) =
                self.peer.poll(self.now, &mut |datagram| to_server.push(datagram))
            {
                self.events.push(event);
            }
            for datagram in to_server {
                let receive =
                    Receive::new(Protocol::Udp, self.ours, self.theirs, &datagram.contents);
                let input = Input::Receive(self.now, receive.unwrap());
                self.server.handle_input(input).unwrap();
            }
            self.poll_server();
            self.now += STEP;
            self.server.handle_input(Input::Timeout(self.now)).unwrap();
        }
    }

    fn poll_server(&mut self) {
        loop {
            match self.server.poll_output().unwrap() {
                Output::Timeout(_) => return,
                Output::Transmit(datagram) => {
                    self.peer.receive(self.now, self.theirs, self.ours, &datagram.contents);
                }
                Output::Event(Event::ChannelOpen(id, label)) if label == "_reliable" => {
                    self.channel = Some(id);
                }
                Output::Event(Event::ChannelData(data)) => {
                    self.packets.push(proto::DataPacket::decode(&data.data[..]).unwrap());
                }
                Output::Event(Event::RtpPacket(_)) => self.audio_packets += 1,
                Output::Event(_) => {}
            }
        }
    }

    /// A data packet from a person.
    fn send(&mut self, sender: &str, value: Value) {
        self.sequence += 1;
        let packet = proto::DataPacket {
            participant_identity: sender.into(),
            participant_sid: format!("PA_{sender}"),
            sequence: self.sequence,
            value: Some(value),
            ..proto::DataPacket::default()
        };
        let mut channel = self.server.channel(self.channel.unwrap()).unwrap();
        assert!(channel.write(true, &packet.encode_to_vec()).unwrap());
        self.run(Duration::from_millis(50));
    }

    fn take_requests(&mut self) -> Vec<Request> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }

    /// The events so far, in words.
    fn take_events(&mut self) -> Vec<String> {
        let describe = |event: TransportEvent| match event {
            TransportEvent::Connected => "connected".to_owned(),
            TransportEvent::Text(text) => format!("text {text}"),
            TransportEvent::Room(RoomEvent::CallersChanged { count }) => format!("{count} people"),
            TransportEvent::Room(RoomEvent::CallerLeft { identity }) => format!("{identity} left"),
            TransportEvent::Room(RoomEvent::Closed(end)) => format!("closed {end:?}"),
            TransportEvent::Room(RoomEvent::Request(request)) => {
                let origin = matches!(request.origin, RequestOrigin::Rpc { .. });
                format!("{:?} {}", request.command, if origin { "by rpc" } else { "by chat" })
            }
            other => format!("{other:?}"),
        };
        let is_news = |event: &TransportEvent| {
            !matches!(
                event,
                TransportEvent::BandwidthEstimate(_)
                    | TransportEvent::PacketLoss(_)
                    | TransportEvent::ChannelOpen
            )
        };
        self.events.drain(..).filter(is_news).map(describe).collect()
    }
}

fn person(sid: &str, identity: &str, tracks: &[&str]) -> ParticipantInfo {
    let track = |sid: &&str| TrackInfo {
        sid: (*sid).into(),
        r#type: proto::TrackType::Audio as i32,
        source: proto::TrackSource::Microphone as i32,
        ..TrackInfo::default()
    };
    ParticipantInfo {
        sid: sid.into(),
        identity: identity.into(),
        state: proto::participant_info::State::Active as i32,
        tracks: tracks.iter().map(track).collect(),
        ..ParticipantInfo::default()
    }
}

/// An agent of ours whose call was created at a time.
fn agent(sid: &str, identity: &str, created: &str) -> ParticipantInfo {
    let attributes = [("lk.agent_name", "visavis"), (super::CREATED_ATTRIBUTE, created)];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ParticipantInfo {
        kind: proto::participant_info::Kind::Agent as i32,
        attributes: attributes.into(),
        ..person(sid, identity, &[])
    }
}

fn update(participants: Vec<ParticipantInfo>) -> signal_response::Message {
    signal_response::Message::Update(proto::ParticipantUpdate { participants })
}

fn left(mut person: ParticipantInfo, reason: proto::DisconnectReason) -> ParticipantInfo {
    person.state = proto::participant_info::State::Disconnected as i32;
    person.disconnect_reason = reason as i32;
    person
}

#[test]
fn a_track_is_heard_once_an_answer_has_bound_it_and_idle_sections_are_offered_again() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &["TR_1"])]);
    harness.run(Duration::from_secs(1));
    harness.take_requests();
    let need = proto::MediaSectionsRequirement { num_audios: 0, num_videos: 0 };
    harness.signal(signal_response::Message::MediaSectionsRequirement(need));
    let requests = harness.take_requests();
    let [Request::Offer(offer)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(offer.id, 2);
    assert!(offer.sdp.contains("a=recvonly"), "{}", offer.sdp);
    // Further needs wait for the answer.
    let need = proto::MediaSectionsRequirement { num_audios: 2, num_videos: 0 };
    harness.signal(signal_response::Message::MediaSectionsRequirement(need));
    assert!(harness.take_requests().is_empty());
    let offer = offer.clone();
    harness.answer(&offer, &[("x", "TR_1")]);
    let requests = harness.take_requests();
    assert!(matches!(&requests[..], [Request::Offer(next)] if next.id == 3), "{requests:?}");
}

#[test]
fn people_write_call_procedures_and_strangers_do_not() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &[])]);
    harness.run(Duration::from_secs(1));
    harness.take_events();
    let user = |payload: &str| {
        Value::User(proto::UserPacket {
            payload: payload.as_bytes().to_vec(),
            topic: Some("visavis".into()),
            ..proto::UserPacket::default()
        })
    };
    let rpc = |method: &str| {
        Value::RpcRequest(proto::RpcRequest {
            id: "7".into(),
            method: method.into(),
            ..proto::RpcRequest::default()
        })
    };
    harness.send("stranger", user("{}"));
    harness.send("maria", user("{\"type\":\"client-ready\"}"));
    harness.send("maria", rpc("visavis.interrupt"));
    harness.send("maria", rpc("visavis.unknown"));
    assert_eq!(harness.take_events(), ["text {\"type\":\"client-ready\"}", "Interrupt by rpc"]);
    harness.peer.answer_rpc(harness.now, "maria", "7", Ok(()));
    harness.run(Duration::from_millis(50));
    let answers: Vec<String> = harness
        .packets
        .iter()
        .map(|packet| match packet.value.as_ref().unwrap() {
            Value::RpcAck(_) => "ack".to_owned(),
            Value::RpcResponse(response) => match response.value.as_ref().unwrap() {
                proto::rpc_response::Value::Payload(payload) => payload.clone(),
                proto::rpc_response::Value::Error(error) => error.code.to_string(),
                other => format!("{other:?}"),
            },
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(answers, ["ack", "ack", "1400", "ok"]);
    let sequences: Vec<u32> = harness.packets.iter().map(|packet| packet.sequence).collect();
    assert_eq!(sequences, [1, 2, 3, 4]);
}

/// The server reports whether somebody watches.
fn watched(enabled: bool) -> signal_response::Message {
    let one = proto::SubscribedQuality { quality: 2, enabled };
    let codec = proto::SubscribedCodec { codec: "vp8".into(), qualities: vec![one] };
    signal_response::Message::SubscribedQualityUpdate(proto::SubscribedQualityUpdate {
        track_sid: "TR_v".into(),
        subscribed_codecs: vec![codec],
        ..proto::SubscribedQualityUpdate::default()
    })
}

#[test]
fn nobody_who_watches_means_no_video() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &[])]);
    harness.run(Duration::from_secs(1));
    harness.take_events();
    assert!(harness.peer.is_watched(), "a key frame publishes the track");
    let key = VideoFrame { payload: vec![0x50; 700].into(), is_key_frame: true, base_layer: true };
    assert!(harness.peer.send_video(harness.now, 0, &key));
    assert!(!harness.peer.is_watched() && harness.peer.has_video());
    assert!(!harness.peer.send_video(harness.now, 3_600, &key));
    for _ in 0..2 {
        harness.signal(watched(true));
        harness.run(STEP);
        assert!(harness.peer.is_watched());
        assert_eq!(harness.take_events(), ["KeyFrameRequested"]);
        harness.signal(watched(false));
        assert!(!harness.peer.is_watched());
    }
}

#[test]
fn the_agent_speaks_with_its_level_and_shows_its_state() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &[])]);
    harness.run(Duration::from_secs(1));
    harness.take_requests();
    harness.peer.set_state(AgentState::Speaking);
    harness.peer.set_state(AgentState::Speaking);
    let requests = harness.take_requests();
    let [Request::UpdateMetadata(update)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(update.attributes["lk.agent.state"], "speaking");
    for n in 0..10_u64 {
        let frame = AudioFrame {
            timestamp: n * 960,
            due: harness.now,
            starts_talk_spurt: n == 0,
            packet: &[0xf8, 1, 2],
            pcm: &[1_000; 960],
            playout_position: None,
            is_within_segment: true,
        };
        harness.peer.send_audio(harness.now, &frame);
        harness.run(Duration::from_millis(20));
    }
    assert_eq!(harness.audio_packets, 10);
}

#[test]
fn the_server_s_feedback_gives_an_estimate_of_the_bandwidth() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &[])]);
    harness.signal(watched(true));
    harness.run(Duration::from_secs(1));
    harness.events.clear();
    for n in 0..100_u64 {
        let frame = VideoFrame {
            payload: vec![0x50; 700].into(),
            is_key_frame: n == 0,
            base_layer: n == 0,
        };
        harness.peer.send_video(harness.now, n * 3_600, &frame);
        harness.run(Duration::from_millis(40));
    }
    let estimates = harness.events.iter().filter_map(|event| match event {
        TransportEvent::BandwidthEstimate(bps) => Some(*bps),
        _ => None,
    });
    let last = estimates.last();
    assert!(last.is_some_and(|bps| bps > 100_000), "{last:?}");
}

#[test]
fn a_resumed_connection_says_what_it_knows() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &["TR_1"])]);
    harness.run(Duration::from_secs(1));
    harness.peer.set_state(AgentState::Thinking);
    harness.take_requests();
    harness.peer.handle_signal(harness.now, RoomSignal::Interrupted);
    harness.signal(signal_response::Message::Reconnect(proto::ReconnectResponse::default()));
    let requests = harness.take_requests();
    let Request::SyncState(state) = &requests[0] else { panic!("{requests:?}") };
    assert_eq!(state.subscription.as_ref().unwrap().track_sids, ["TR_1"]);
    assert!(!state.answer.as_ref().unwrap().sdp.is_empty());
    assert!(matches!(&requests[1], Request::UpdateMetadata(_)), "the state may have been lost");
}

#[test]
fn nonsense_of_the_server_changes_nothing() {
    let mut harness = Harness::joined(vec![person("PA_1", "maria", &["TR_1"])]);
    harness.run(Duration::from_secs(1));
    harness.take_events();
    let trickle = |init: &str| {
        signal_response::Message::Trickle(proto::TrickleRequest {
            candidate_init: init.into(),
            ..proto::TrickleRequest::default()
        })
    };
    for init in ["", "{", "{\"candidate\": 7}", "{\"candidate\": \"candidate:nonsense\"}"] {
        harness.signal(trickle(init));
    }
    harness.signal(signal_response::Message::Answer(proto::SessionDescription::default()));
    let many = proto::MediaSectionsRequirement { num_audios: 1_000_000, num_videos: 9 };
    harness.signal(signal_response::Message::MediaSectionsRequirement(many));
    let requests = harness.take_requests();
    let mut offers = requests.iter().filter(|request| matches!(request, Request::Offer(_)));
    let offer = offers.next_back().cloned();
    let Some(Request::Offer(offer)) = offer else { panic!("{requests:?}") };
    assert!(offer.sdp.matches("m=audio").count() <= 40, "a bounded number of sections");
    assert_eq!(harness.take_events(), [""; 0]);
    let broken = proto::SessionDescription { sdp: "nonsense".into(), id: offer.id, ..offer };
    harness.signal(signal_response::Message::Answer(broken));
    let requests = harness.take_requests();
    let is_leave = |request: &Request| matches!(request, Request::Leave(_));
    assert!(requests.iter().any(is_leave), "{requests:?}");
    harness.run(STEP);
    let events = harness.take_events();
    assert!(events.len() == 1 && events[0].starts_with("closed Failed"), "{events:?}");
}
