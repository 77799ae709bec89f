//! A LiveKit room in virtual time: a stand-in for its server, built on str0m. The test writes the
//! signals, and what people send.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use conversation::id::ConversationId;
use engine::messages::Message;
use engine::transport::livekit::room_peer::{
    JoinParts, Publication, Request, RoomPeer, RoomSignal,
};
use engine::transport::livekit::room_socket::RoomSocket;
use engine::transport::webrtc::Certificate;
use engine_api::CallConfig;
use livekit_protocol as proto;
use prost::Message as _;
use proto::data_packet::Value;
use proto::data_stream::header::ContentHeader;
use proto::data_stream::{Chunk, Header, TextHeader, Trailer};
use proto::{ParticipantInfo, signal_response};
use str0m::change::SdpOffer;
use str0m::channel::ChannelId;
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::sync::mpsc;

use super::Harness;

/// Step of the simulated time.
const STEP: Duration = Duration::from_millis(5);

/// The server's side of one stay of the agent.
pub struct LiveKitRoom {
    rtc: Rtc,
    socket: UdpSocket,
    conversation: ConversationId,
    /// Id of the agent's connection.
    connection: Arc<str>,
    requests: mpsc::Receiver<Request>,
    channel: Option<ChannelId>,
    sequence: u32,
    /// Data packets of the agent.
    pub packets: Vec<Value>,
}

impl LiveKitRoom {
    /// A call of an agent in a room with these people.
    pub fn start(
        harness: &mut Harness,
        call: CallConfig,
        answer: &str,
        people: &[ParticipantInfo],
    ) -> Self {
        let (mut room, peer, socket) = Self::join(harness, call.id, people);
        harness.start_room(call, answer, peer, socket);
        room.connect(harness);
        room
    }

    /// The agent of a running call joins the room again.
    pub fn rejoin(harness: &mut Harness, id: u128, people: &[ParticipantInfo]) -> Self {
        let (mut room, peer, socket) = Self::join(harness, ConversationId(id), people);
        harness.rejoin_room(id, peer, socket);
        room.connect(harness);
        room
    }

    fn join(
        harness: &Harness,
        conversation: ConversationId,
        people: &[ParticipantInfo],
    ) -> (Self, Box<RoomPeer>, RoomSocket) {
        let now = harness.now;
        let theirs = RoomSocket::bind(&[Ipv4Addr::LOCALHOST]).unwrap();
        let certificate = Certificate::generate().unwrap();
        let publication = Publication { video: None, created_unix_ms: 1 };
        let (sender, requests) = mpsc::channel(256);
        let made = RoomPeer::new(theirs.candidates(), &certificate, publication, sender, now);
        let (mut peer, JoinParts { offer, .. }) = made.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut rtc = Rtc::builder()
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(true)
            .build(now);
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let join = proto::JoinResponse {
            participant: Some(person("agent")),
            other_participants: people.to_vec(),
            ..proto::JoinResponse::default()
        };
        let sdp = SdpOffer::from_sdp_string(&offer.sdp).unwrap();
        let answer = proto::SessionDescription {
            r#type: "answer".into(),
            sdp: rtc.sdp_api().accept_offer(sdp).unwrap().to_sdp_string(),
            id: offer.id,
            ..proto::SessionDescription::default()
        };
        for signal in
            [signal_response::Message::Join(join), signal_response::Message::Answer(answer)]
        {
            peer.handle_signal(now, RoomSignal::Server(Box::new(signal)));
        }
        let room = Self {
            rtc,
            socket,
            conversation,
            connection: peer.id().into(),
            requests,
            channel: None,
            sequence: 0,
            packets: Vec::new(),
        };
        (room, Box::new(peer), theirs)
    }

    fn connect(&mut self, harness: &mut Harness) {
        for _ in 0..1_000 {
            if self.channel.is_some() {
                return;
            }
            self.run(harness, STEP);
        }
        panic!("it never connected: {:?}", harness.recorder.event_names(self.conversation.0));
    }

    /// Lets time pass.
    pub fn run(&mut self, harness: &mut Harness, span: Duration) {
        for _ in 0..span.as_millis() / STEP.as_millis() {
            self.exchange(harness);
            harness.run_for(STEP);
        }
        // Requests to the server have no effect here.
        while self.requests.try_recv().is_ok() {}
    }

    fn exchange(&mut self, harness: &Harness) {
        self.rtc.handle_input(Input::Timeout(harness.now)).unwrap();
        let local = self.socket.local_addr().unwrap();
        let mut buffer = [0; 2_000];
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Transmit(datagram) => {
                    self.socket.send_to(&datagram.contents, datagram.destination).unwrap();
                }
                Output::Event(Event::ChannelOpen(id, label)) if label == "_reliable" => {
                    self.channel = Some(id);
                }
                Output::Event(Event::ChannelData(data)) => {
                    let packet = proto::DataPacket::decode(&data.data[..]).unwrap();
                    self.packets.extend(packet.value);
                }
                Output::Event(_) => {}
                Output::Timeout(_) => {
                    let Ok((n, source)) = self.socket.recv_from(&mut buffer) else { return };
                    let contents = &buffer[..n];
                    let receive = Receive::new(Protocol::Udp, source, local, contents).unwrap();
                    self.rtc.handle_input(Input::Receive(harness.now, receive)).unwrap();
                }
            }
        }
    }

    /// Passes a signal to the agent.
    pub fn signal(&mut self, harness: &mut Harness, signal: RoomSignal) {
        let message = Message::RoomSignal {
            conversation: self.conversation,
            connection: Arc::clone(&self.connection),
            signal,
        };
        assert!(harness.inbox.requests.send(message).is_ok());
        self.run(harness, STEP);
    }

    /// Reports changes of people.
    pub fn update(&mut self, harness: &mut Harness, participants: Vec<ParticipantInfo>) {
        let update = signal_response::Message::Update(proto::ParticipantUpdate { participants });
        self.signal(harness, RoomSignal::Server(Box::new(update)));
    }

    /// A person writes a message to the chat.
    pub fn write(&mut self, harness: &mut Harness, sender: &str, text: &str) {
        let stream_id = format!("chat-{}", self.sequence);
        let header = Header {
            stream_id: stream_id.clone(),
            topic: "lk.chat".into(),
            content_header: Some(ContentHeader::TextHeader(TextHeader::default())),
            ..Header::default()
        };
        let content = text.as_bytes().to_vec();
        let chunk = Chunk { stream_id: stream_id.clone(), content, ..Chunk::default() };
        let trailer = Trailer { stream_id, ..Trailer::default() };
        for value in
            [Value::StreamHeader(header), Value::StreamChunk(chunk), Value::StreamTrailer(trailer)]
        {
            self.sequence += 1;
            let packet = proto::DataPacket {
                participant_identity: sender.into(),
                participant_sid: format!("PA_{sender}"),
                sequence: self.sequence,
                value: Some(value),
                ..proto::DataPacket::default()
            };
            let mut channel = self.rtc.channel(self.channel.unwrap()).unwrap();
            assert!(channel.write(true, &packet.encode_to_vec()).unwrap());
        }
        self.run(harness, 4 * STEP);
    }

    /// The texts that the agent has sent as text streams of a topic, in order: the id of the
    /// segment (empty in the chat), the text, and whether the stream has ended.
    pub fn texts(&self, topic: &str) -> Vec<(String, String, bool)> {
        let mut streams: Vec<(&str, (String, String, bool))> = Vec::new();
        for packet in &self.packets {
            let id = match packet {
                Value::StreamHeader(header) if header.topic == topic => {
                    let segment = header.attributes.get("lk.segment_id");
                    let text = (segment.cloned().unwrap_or_default(), String::new(), false);
                    streams.push((&header.stream_id, text));
                    continue;
                }
                Value::StreamChunk(Chunk { stream_id, .. })
                | Value::StreamTrailer(Trailer { stream_id, .. }) => stream_id,
                _ => continue,
            };
            let Some((_, text)) = streams.iter_mut().rev().find(|(known, _)| known == id) else {
                continue;
            };
            match packet {
                Value::StreamChunk(chunk) => {
                    text.1.push_str(str::from_utf8(&chunk.content).unwrap());
                }
                _ => text.2 = true,
            }
        }
        streams.into_iter().map(|(_, text)| text).collect()
    }
}

/// A person without a microphone.
pub fn person(identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        sid: format!("PA_{identity}"),
        identity: identity.into(),
        state: proto::participant_info::State::Active as i32,
        ..ParticipantInfo::default()
    }
}

/// The report that a person has left of their own accord.
pub fn left(identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        state: proto::participant_info::State::Disconnected as i32,
        disconnect_reason: proto::DisconnectReason::ClientInitiated as i32,
        ..person(identity)
    }
}
