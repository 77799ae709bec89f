//! Data packets: those that wait to be sent, and what those that arrive mean.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use conversation::input::Command;
use livekit_protocol as proto;
use prost::Message as _;
use proto::data_packet::Value;
use proto::{DataChannelReceiveState, DataPacket};
use str0m::Rtc;
use str0m::channel::ChannelId;

use super::text_streams::{IncomingTexts, ReceivedText};
use super::{CHAT_TOPIC, MESSAGE_TOPIC, RequestOrigin, RoomCommand};
use crate::token_bucket::TokenBucket;
use crate::transport::Priority;

/// Maximum size of all packets that wait, in bytes.
const MAX_QUEUED_BYTES: usize = 512 * 1024;
/// Maximum size of one packet, in bytes. The server accepts 65,535.
const MAX_PACKET_BYTES: usize = 60_000;
/// Messages of all people together: per second, and burst.
const MESSAGE_RATE: (f64, f64) = (20.0, 60.0);
/// Maximum length of an answer to a remote procedure call, in bytes.
const MAX_RPC_BYTES: usize = 15_000;
/// Maximum number of senders whose last packet is remembered for a resumed connection.
const MAX_SENDERS: usize = 256;
/// Procedures that people may call.
const INTERRUPT_METHOD: &str = "visavis.interrupt";
const END_METHOD: &str = "visavis.end";
/// Errors of remote procedure calls, by LiveKit's numbers.
const UNSUPPORTED_METHOD: u32 = 1400;
const APPLICATION_ERROR: u32 = 1500;

/// A packet to send.
pub(super) struct OutgoingPacket {
    pub(super) value: Value,
    /// Identities of the receivers; empty = everybody.
    pub(super) receivers: Vec<String>,
    /// Identity in whose name it is sent; empty = the agent's.
    pub(super) sender: String,
    pub(super) priority: Priority,
}

impl OutgoingPacket {
    pub(super) fn to_all(value: Value) -> Self {
        let (receivers, sender) = (Vec::new(), String::new());
        Self { value, receivers, sender, priority: Priority::Essential }
    }
}

/// What a packet means for the call.
#[derive(Debug)]
pub(super) enum Received {
    /// A message of the protocol of our own pages.
    Message(String),
    /// A request.
    Request(RoomCommand),
}

/// The two data channels of a participant.
pub(super) struct DataChannels {
    reliable: ChannelId,
    /// Whether the reliable channel is open.
    is_open: bool,
    /// Number of the last reliable packet. The server drops those with lower numbers.
    sequence: u32,
    queue: VecDeque<(OutgoingPacket, usize)>,
    queued_bytes: usize,
    /// An encoded packet that the channel did not take yet.
    blocked: Option<Vec<u8>>,
    dropped: u64,
    /// Last reliable packet of each sender.
    received: HashMap<String, u32>,
    texts: IncomingTexts,
    rate: TokenBucket,
}

impl DataChannels {
    pub(super) fn new(reliable: ChannelId, now: Instant) -> Self {
        Self {
            reliable,
            is_open: false,
            sequence: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            blocked: None,
            dropped: 0,
            received: HashMap::new(),
            texts: IncomingTexts::default(),
            rate: TokenBucket::new(MESSAGE_RATE.0, MESSAGE_RATE.1, now),
        }
    }

    /// A channel is open. Returns whether messages can be sent from now on.
    pub(super) fn on_open(&mut self, channel: ChannelId) -> bool {
        let is_ours = channel == self.reliable;
        self.is_open |= is_ours;
        is_ours
    }

    /// Number of packets that were dropped because the server did not take them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Queues a packet. Over the limit, the oldest progress packet is dropped, else the oldest.
    pub(super) fn push(&mut self, packet: OutgoingPacket) {
        let bytes = packet_size(&packet.value);
        if bytes > MAX_PACKET_BYTES {
            self.dropped += 1;
            return;
        }
        self.queued_bytes += bytes;
        self.queue.push_back((packet, bytes));
        while self.queued_bytes > MAX_QUEUED_BYTES {
            let is_progress =
                |(packet, _): &(OutgoingPacket, usize)| packet.priority == Priority::Progress;
            let index = self.queue.iter().position(is_progress).unwrap_or(0);
            let Some((_, bytes)) = self.queue.remove(index) else { return };
            self.queued_bytes -= bytes;
            self.dropped += 1;
        }
    }

    /// Passes queued packets to SCTP.
    pub(super) fn flush(&mut self, rtc: &mut Rtc) {
        if !self.is_open {
            return;
        }
        loop {
            let Some(bytes) = self.blocked.take().or_else(|| self.encode_next()) else { return };
            let Some(mut channel) = rtc.channel(self.reliable) else {
                self.blocked = Some(bytes);
                return;
            };
            match channel.write(true, &bytes) {
                Ok(true) => {}
                Ok(false) => {
                    self.blocked = Some(bytes);
                    return;
                }
                Err(_) => self.dropped += 1,
            }
        }
    }

    fn encode_next(&mut self) -> Option<Vec<u8>> {
        let (packet, bytes) = self.queue.pop_front()?;
        self.queued_bytes -= bytes;
        self.sequence += 1;
        let packet = DataPacket {
            participant_identity: packet.sender,
            destination_identities: packet.receivers,
            sequence: self.sequence,
            value: Some(packet.value),
            ..DataPacket::default()
        };
        Some(packet.encode_to_vec())
    }

    /// Reads a packet. `is_allowed`: whether its sender is one of the people in the room.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        channel: ChannelId,
        bytes: &[u8],
        is_allowed: impl FnOnce(&str) -> bool,
    ) -> Option<Received> {
        let packet = DataPacket::decode(bytes).ok()?;
        let sid = packet.participant_sid;
        if channel == self.reliable && packet.sequence > 0 {
            let has_room = self.received.len() < MAX_SENDERS;
            if has_room || self.received.contains_key(&sid) {
                self.received.insert(sid, packet.sequence);
            }
        }
        let sender = packet.participant_identity;
        if !is_allowed(&sender) {
            return None;
        }
        let received = self.read(&sender, packet.value?)?;
        if self.rate.try_take(now) {
            return Some(received);
        }
        if let Received::Request(RoomCommand {
            origin: RequestOrigin::Rpc { caller, request_id },
            ..
        }) = received
        {
            self.answer_rpc(&caller, &request_id, Err("Too many requests".to_owned()));
        }
        None
    }

    fn read(&mut self, sender: &str, value: Value) -> Option<Received> {
        match value {
            Value::User(user) if user.topic.as_deref() == Some(MESSAGE_TOPIC) => {
                String::from_utf8(user.payload).ok().map(Received::Message)
            }
            Value::StreamHeader(header) if header.topic == CHAT_TOPIC => {
                self.texts.on_header(sender, header);
                None
            }
            Value::StreamChunk(chunk) => {
                self.texts.on_chunk(sender, &chunk);
                None
            }
            Value::StreamTrailer(trailer) => {
                let ReceivedText { text, .. } = self.texts.on_trailer(sender, &trailer)?;
                let command = Command::Respond { text };
                Some(Received::Request(RoomCommand { command, origin: RequestOrigin::Chat }))
            }
            Value::RpcRequest(request) => {
                let (caller, request_id) = (sender.to_owned(), request.id.clone());
                self.acknowledge(&caller, &request_id);
                let command = match request.method.as_str() {
                    INTERRUPT_METHOD => Command::Interrupt,
                    END_METHOD => Command::End,
                    _ => {
                        let error = rpc_error(UNSUPPORTED_METHOD, "Method not supported");
                        self.respond(&caller, &request_id, error);
                        return None;
                    }
                };
                let origin = RequestOrigin::Rpc { caller, request_id };
                Some(Received::Request(RoomCommand { command, origin }))
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, caller: &str, request_id: &str) {
        let value = Value::RpcAck(proto::RpcAck { request_id: request_id.to_owned() });
        self.push_to(caller, value);
    }

    /// Answers a remote procedure call: with "ok", or with the reason of the rejection.
    pub(super) fn answer_rpc(
        &mut self,
        caller: &str,
        request_id: &str,
        outcome: Result<(), String>,
    ) {
        let value = match outcome {
            Ok(()) => proto::rpc_response::Value::Payload("ok".to_owned()),
            Err(why) => rpc_error(APPLICATION_ERROR, &why),
        };
        self.respond(caller, request_id, value);
    }

    fn respond(&mut self, caller: &str, request_id: &str, value: proto::rpc_response::Value) {
        let (request_id, value) = (request_id.to_owned(), Some(value));
        self.push_to(caller, Value::RpcResponse(proto::RpcResponse { request_id, value }));
    }

    fn push_to(&mut self, receiver: &str, value: Value) {
        let receivers = vec![receiver.to_owned()];
        self.push(OutgoingPacket { receivers, ..OutgoingPacket::to_all(value) });
    }

    /// The last packet of each sender, so that a resumed connection repeats no packet.
    pub(super) fn receive_states(&self) -> Vec<DataChannelReceiveState> {
        let state = |(sid, last): (&String, &u32)| DataChannelReceiveState {
            publisher_sid: sid.clone(),
            last_seq: *last,
        };
        self.received.iter().map(state).collect()
    }
}

fn rpc_error(code: u32, message: &str) -> proto::rpc_response::Value {
    let message = message[..message.floor_char_boundary(MAX_RPC_BYTES)].to_owned();
    let data = String::new();
    proto::rpc_response::Value::Error(proto::RpcError { code, message, data })
}

/// Size of a packet, without the few bytes of its envelope.
fn packet_size(value: &Value) -> usize {
    match value {
        Value::User(user) => user.payload.len(),
        Value::StreamHeader(header) => header.encoded_len(),
        Value::StreamChunk(chunk) => chunk.content.len(),
        Value::Transcription(transcription) => transcription.encoded_len(),
        _ => 64,
    }
}
