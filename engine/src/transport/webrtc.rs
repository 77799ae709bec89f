//! One WebRTC connection on str0m. It holds no socket, thread or clock.
//!
//! The server is ICE-lite: the client sends the connectivity checks. RTP mode: the jitter buffer of
//! the user's audio is ours ([`crate::hear::jitter`]), and so is the VP8 payload descriptor
//! ([`super::vp8`]). The RTP timestamps of both tracks count from the same zero, and the sender
//! reports say so.
//!
//! ```text
//!  accept()
//!     │
//!     ▼
//! connecting ──ICE, DTLS: Connected──► connected
//!     │  │                               │  │
//!     │  └── close(), abort() ───┬───────┘  └── peer closes, or str0m fails ──┐
//!     │                          ▼                                            │
//!     │        closing: no new texts; queued texts leave (0.3 s, abort: 0)    │
//!     │                          │ then BYE and close_notify, at most 0.3 s   │
//!     │                          ▼                                            ▼
//!     └── str0m fails ──────► closed ◄── event Closed, unless closing ────────┘
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use str0m::bwe::BweKind;
use str0m::change::SdpOffer;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, Mid, Pt};
use str0m::net::{Receive, TcpType};
use str0m::rtp::Extension;
use str0m::{Candidate, IceCreds, Input, Output, Rtc};

pub use str0m::net::{Protocol, Transmit};

use super::data_channel_queue::SendQueue;
use super::pacer::{Pacer, Packet};
use super::track::Track;
use super::vp8::{self, Packetizer};
use super::{TextMessage, TransportEvent, VideoFrame, sdp};

/// Maximum length of a text frame from the client, bytes; the answer announces it.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// How long a closing connection waits until its last texts are acknowledged. The same time is
/// allowed again for the close_notify to leave.
const PEER_CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
/// The wall clock of both tracks is set back by this much. str0m reports an RTP time of 0 if a
/// packet's wall clock is in the future, and frames are written slightly early. Only the difference
/// between the tracks matters to a receiver.
const CLOCK_OFFSET: Duration = Duration::from_millis(500);
/// A timestamp that deviates from the clock by more than this sets a new clock reference.
const MAX_TIMESTAMP_DRIFT: Duration = Duration::from_secs(2);
/// Maximum number of due timeouts that one `poll` serves; a guard against spinning.
const MAX_TIMEOUTS_PER_POLL: usize = 64;
/// Capacity of str0m's channel buffer, bytes; str0m accepts no longer text.
const MAX_CHANNEL_BUFFER_BYTES: usize = 128 * 1024;
/// Time until the next timeout of a connection that has none: practically never.
const NO_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The server's DTLS certificate. Generating one takes about 0.2 s, so generate it once, at
/// start-up.
#[derive(Clone, Debug)]
pub struct Certificate(pub(super) str0m::config::DtlsCert);

impl Certificate {
    /// Generates a key and its self-signed certificate; `None` if the crypto library fails.
    #[must_use]
    pub fn generate() -> Option<Self> {
        str0m::crypto::from_feature_flags().dtls_provider.generate_certificate().map(Self)
    }
}

/// An address at which clients reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalCandidate {
    /// The address that the client sends to.
    pub address: SocketAddr,
    /// UDP, or passive TCP.
    pub protocol: Protocol,
}

/// Why an offer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The offer is no valid WebRTC SDP. HTTP 400.
    #[error("{0}")]
    BadSdp(String),
    /// The offer has no audio codec that the agent supports. HTTP 406.
    #[error("the offer has no audio section with Opus")]
    NoOpus,
}

impl From<sdp::SdpRejection> for AcceptError {
    fn from(refused: sdp::SdpRejection) -> Self {
        match refused {
            sdp::SdpRejection::Invalid(why) => Self::BadSdp(why.into()),
            sdp::SdpRejection::NoOpus => Self::NoOpus,
        }
    }
}

/// One peer connection. Its owner feeds datagrams and time, and drains [`PeerConnection::poll`].
pub struct PeerConnection {
    pub(super) rtc: Rtc,
    id: String,
    ufrag: String,
    stream_id: String,
    pub(super) opus_pt: Option<Pt>,
    audio_track: Option<Track>,
    video_track: Option<Track>,
    packetizer: Packetizer,
    pacer: Pacer,
    /// Clock reference: an instant and the media time at that instant.
    clock_reference: Option<(Instant, Duration)>,
    data_channel: Option<ChannelId>,
    send_queue: SendQueue,
    /// Outputs of str0m after a received datagram, for [`PeerConnection::poll`].
    pending_outputs: VecDeque<Output>,
    pub(super) next_timeout: Instant,
    last_heard: Option<Instant>,
    /// Deadline of the current phase of closing.
    close_deadline: Option<Instant>,
    close_sent: bool,
    close_reported: bool,
}

impl PeerConnection {
    /// Answers an offer. The answer lists all `local` addresses. Nothing from the client is trusted
    /// or stored before a STUN check with a valid MESSAGE-INTEGRITY.
    ///
    /// # Errors
    ///
    /// The offer is no usable SDP, or has no Opus.
    pub fn accept(
        offer: &str,
        local: &[LocalCandidate],
        certificate: &Certificate,
        now: Instant,
    ) -> Result<(Self, String), AcceptError> {
        let mut rtc = Rtc::builder()
            .set_ice_lite(true)
            .set_local_ice_credentials(IceCreds { ufrag: random_hex(16), pass: random_hex(32) })
            .set_dtls_cert(certificate.0.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(true)
            // Without transport-wide feedback a browser reports its estimate (REMB), which requires
            // the absolute send time. The estimate is all that is needed, and costs neither side a
            // feedback packet per media packet.
            .clear_extension_map()
            .set_extension(2, Extension::AbsoluteSendTime)
            .set_extension(4, Extension::RtpMid)
            .set_sctp_max_message_size(MAX_MESSAGE_BYTES as u32)
            .set_rtcp_report_interval_audio(Duration::from_secs(1))
            .set_stats_interval(Some(Duration::from_secs(1)))
            .set_rtcp_report_interval_video(Duration::from_secs(1))
            .build(now);
        for candidate in local {
            let built = match candidate.protocol {
                Protocol::Udp => Candidate::builder().udp().host(candidate.address).build(),
                _ => Candidate::builder()
                    .tcp()
                    .host(candidate.address)
                    .tcptype(TcpType::Passive)
                    .build(),
            };
            match built {
                Ok(built) => drop(rtc.add_local_candidate(built)),
                Err(error) => {
                    tracing::warn!(address = %candidate.address, %error,
                        "an address is not valid as an ICE candidate"
                    )
                }
            }
        }
        let mut connection = Self::from_rtc(rtc, now);
        let answer = connection.renegotiate(offer, now)?;
        Ok((connection, answer))
    }

    /// A connection to an SFU, whose negotiation is still to come.
    pub(super) fn with_sfu(rtc: Rtc, now: Instant) -> Self {
        let mut connection = Self::from_rtc(rtc, now);
        connection.pacer.set_to_sfu();
        connection
    }

    fn from_rtc(rtc: Rtc, now: Instant) -> Self {
        Self {
            rtc,
            id: random_hex(32),
            ufrag: String::new(),
            stream_id: format!("agent-{}", random_hex(8)),
            opus_pt: None,
            audio_track: None,
            video_track: None,
            packetizer: Packetizer::new(rand::random(), rand::random()),
            pacer: Pacer::new(now),
            clock_reference: None,
            data_channel: None,
            send_queue: SendQueue::default(),
            pending_outputs: VecDeque::new(),
            next_timeout: now,
            last_heard: None,
            close_deadline: None,
            close_sent: false,
            close_reported: false,
        }
    }

    /// Answers a further offer on this connection. [`PeerConnection::ufrag`] may change.
    ///
    /// # Errors
    ///
    /// The offer does not fit. The connection continues unchanged, as far as str0m allows.
    pub fn renegotiate(&mut self, offer: &str, now: Instant) -> Result<String, AcceptError> {
        let restricted = sdp::restrict_offer(offer)?;
        let bad = |error: &dyn std::fmt::Display| {
            AcceptError::BadSdp(redact_addresses(&error.to_string()))
        };
        let offer = SdpOffer::from_sdp_string(&restricted).map_err(|error| bad(&error))?;
        self.declare_tracks();
        let answer = self.rtc.sdp_api().accept_offer(offer).map_err(|error| bad(&error))?;
        self.ufrag = self.rtc.direct_api().local_ice_credentials().ufrag;
        let answer = answer.to_sdp_string();
        if sdp::count_sections(&answer) != sdp::count_sections(&restricted) {
            return Err(AcceptError::BadSdp("a section cannot be read".into()));
        }
        self.adopt_media(
            answer.lines().filter_map(|line| line.strip_prefix("a=mid:")).map(Mid::from),
        )?;
        self.next_timeout = now;
        Ok(sdp::complete_answer(&answer, &self.stream_id))
    }

    /// Reads the negotiated codecs and tracks from the session.
    pub(super) fn adopt_media(
        &mut self,
        mids: impl Iterator<Item = Mid>,
    ) -> Result<(), AcceptError> {
        let pt = |rtc: &Rtc, codec: Codec, mid: Mid| {
            let offered =
                rtc.media(mid).map(|media| media.remote_pts().to_vec()).unwrap_or_default();
            rtc.codec_config()
                .params()
                .iter()
                .find(|p| p.spec().codec == codec && offered.contains(&p.pt()))
                .map(|p| p.pt())
        };
        let (mut opus, mut audio, mut video) = (None, None, None);
        for mid in mids {
            let Some(media) = self.rtc.media(mid) else { continue };
            let (kind, direction) = (media.kind(), media.direction());
            if direction == Direction::Inactive || media.disabled() {
                continue;
            }
            match kind {
                MediaKind::Audio if opus.is_none() => {
                    opus = pt(&self.rtc, Codec::Opus, mid);
                    audio = opus.filter(|_| direction.is_sending()).map(|pt| (mid, pt));
                }
                MediaKind::Video if video.is_none() && direction.is_sending() => {
                    video = pt(&self.rtc, Codec::Vp8, mid).map(|pt| (mid, pt));
                }
                _ => {}
            }
        }
        if opus.is_none() {
            return Err(AcceptError::NoOpus);
        }
        self.opus_pt = opus;
        self.audio_track = Track::adopt(&mut self.rtc, self.audio_track.take(), audio);
        let previous_mid = self.video_track.as_ref().map(|video| video.mid);
        self.video_track = Track::adopt(&mut self.rtc, self.video_track.take(), video);
        if self.video_track.as_ref().map(|video| video.mid) != previous_mid {
            self.pacer.clear();
        }
        Ok(())
    }

    /// The connection's id. It is random, so only the client that received it knows it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The server's half of the user name in the client's STUN checks.
    #[must_use]
    pub fn ufrag(&self) -> &str {
        &self.ufrag
    }

    /// Whether the client receives the agent's video.
    #[must_use]
    pub fn has_video(&self) -> bool {
        self.video_track.is_some()
    }

    /// When the last datagram arrived that ICE proved to be from the client.
    #[must_use]
    pub fn last_heard(&self) -> Option<Instant> {
        self.last_heard
    }

    /// Number of texts that were dropped because the client did not accept them.
    #[must_use]
    pub fn dropped_texts(&self) -> u64 {
        self.send_queue.dropped()
    }

    /// Whether the datagram belongs to this connection. It does if it is a STUN check with this
    /// connection's user name and a valid MESSAGE-INTEGRITY, or comes from an address that sent
    /// such a check.
    #[must_use]
    pub fn accepts_datagram(
        &self,
        now: Instant,
        proto: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        Receive::new(proto, source, destination, datagram)
            .is_ok_and(|receive| self.rtc.accepts(&Input::Receive(now, receive)))
    }

    /// Handles a datagram if [`PeerConnection::accepts_datagram`] is true for it, and returns that
    /// result. `destination` is the local candidate on which it arrived.
    pub fn receive(
        &mut self,
        now: Instant,
        proto: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        let Ok(receive) = Receive::new(proto, source, destination, datagram) else { return false };
        let input = Input::Receive(now, receive);
        if !self.rtc.accepts(&input) {
            return false;
        }
        if let Err(error) = self.rtc.handle_input(input) {
            // An attacker that forges the client's address can send nonsense; it must not end the
            // call.
            tracing::debug!(%error, "cannot process a datagram");
        } else {
            self.last_heard = Some(now);
            self.drain_outputs();
        }
        self.next_timeout = now;
        true
    }

    /// Collects str0m's outputs. str0m holds only one received packet: a second datagram before
    /// this would replace it.
    fn drain_outputs(&mut self) {
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(_)) => return,
                Ok(output) => self.pending_outputs.push_back(output),
                Err(error) => {
                    tracing::debug!(%error, "peer connection failed");
                    return self.rtc.disconnect();
                }
            }
        }
    }

    /// Takes the next audio packet of the user out of the outputs that datagrams have caused, so
    /// that a tick hears it before the connection is polled.
    pub fn take_audio(&mut self, now: Instant) -> Option<TransportEvent> {
        let packet = self.take_rtp_packet()?;
        self.translate(now, packet)
    }

    /// Takes the event of the next received RTP packet.
    pub(super) fn take_rtp_packet(&mut self) -> Option<str0m::Event> {
        let is_packet =
            |output: &Output| matches!(output, Output::Event(str0m::Event::RtpPacket(_)));
        let position = self.pending_outputs.iter().position(is_packet)?;
        match self.pending_outputs.remove(position) {
            Some(Output::Event(event)) => Some(event),
            _ => None,
        }
    }

    /// When [`PeerConnection::handle_timeout`] is due next.
    #[must_use]
    pub fn timeout(&self) -> Instant {
        self.next_timeout
    }

    /// Advances time to `now`. Drain [`PeerConnection::poll`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.rtc.handle_input(Input::Timeout(now)).is_err() {
            self.rtc.disconnect();
        }
    }

    /// Returns the next event; outgoing datagrams go to `transmit`. Call it until it returns `None`
    /// after every other call. It also serves due timeouts.
    pub fn poll(
        &mut self,
        now: Instant,
        transmit: &mut impl FnMut(Transmit),
    ) -> Option<TransportEvent> {
        self.poll_with(now, transmit, Self::translate)
    }

    /// [`PeerConnection::poll`] with another translation of str0m's events.
    pub(super) fn poll_with<E: From<TransportEvent>>(
        &mut self,
        now: Instant,
        transmit: &mut impl FnMut(Transmit),
        mut translate: impl FnMut(&mut Self, Instant, str0m::Event) -> Option<E>,
    ) -> Option<E> {
        let mut timeouts = 0;
        loop {
            match self.pending_outputs.pop_front().map_or_else(|| self.rtc.poll_output(), Ok) {
                Ok(Output::Transmit(datagram)) => {
                    let retransmission = self
                        .video_track
                        .as_ref()
                        .is_some_and(|track| track.is_retransmission(&datagram.contents));
                    if !retransmission
                        || self.pacer.admit_retransmission(now, datagram.contents.len())
                    {
                        transmit(datagram);
                    }
                }
                Ok(Output::Event(event)) => {
                    if let Some(event) = translate(self, now, event) {
                        return Some(event);
                    }
                }
                Ok(Output::Timeout(at)) => {
                    if self.flush_texts() || self.finish_closing(now) {
                        continue;
                    }
                    if self.send_due_packets(now) {
                        self.handle_timeout(now);
                        continue;
                    }
                    if at <= now && self.rtc.is_alive() && timeouts < MAX_TIMEOUTS_PER_POLL {
                        timeouts += 1;
                        self.handle_timeout(now);
                        continue;
                    }
                    if !self.rtc.is_alive() {
                        self.next_timeout = now + NO_TIMEOUT;
                        return self.closed_event().map(E::from);
                    }
                    let at = [self.close_deadline, self.pacer.next_deadline()]
                        .into_iter()
                        .flatten()
                        .fold(at, Instant::min);
                    self.next_timeout = at.max(now + Duration::from_micros(100));
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, "peer connection failed");
                    self.rtc.disconnect();
                    self.next_timeout = now + NO_TIMEOUT;
                    return self.closed_event().map(E::from);
                }
            }
        }
    }

    /// The channel whose last messages a closing connection waits for.
    pub(super) fn set_data_channel(&mut self, channel: ChannelId) {
        self.data_channel = Some(channel);
    }

    fn closed_event(&mut self) -> Option<TransportEvent> {
        let reported = std::mem::replace(&mut self.close_reported, true);
        (!reported && self.close_deadline.is_none()).then_some(TransportEvent::Closed)
    }

    pub(super) fn translate(
        &mut self,
        now: Instant,
        event: str0m::Event,
    ) -> Option<TransportEvent> {
        match event {
            str0m::Event::Connected => Some(TransportEvent::Connected),
            str0m::Event::RtpPacket(packet) => {
                let is_audio =
                    Some(packet.header.payload_type) == self.opus_pt && !packet.payload.is_empty();
                is_audio.then(|| TransportEvent::Audio {
                    sequence: *packet.seq_no,
                    timestamp: packet.time.rebase(Frequency::FORTY_EIGHT_KHZ).numer(),
                    payload: Bytes::copy_from_slice(&packet.payload),
                })
            }
            str0m::Event::KeyframeRequest(request) => self
                .video_track
                .as_ref()
                .is_some_and(|video| video.mid == request.mid)
                .then_some(TransportEvent::KeyFrameRequested),
            str0m::Event::EgressBitrateEstimate(
                BweKind::Remb { estimate, .. } | BweKind::Twcc { estimate, .. },
            ) => Some(TransportEvent::BandwidthEstimate(estimate.as_u64())),
            str0m::Event::MediaEgressStats(stats) => {
                let is = |track: &Option<Track>| {
                    track.as_ref().is_some_and(|track| track.mid == stats.mid)
                };
                if let Some(loss) = stats.loss.filter(|_| is(&self.video_track)) {
                    self.pacer.on_report(now, loss, stats.rtt);
                }
                stats.loss.filter(|_| is(&self.audio_track)).map(TransportEvent::PacketLoss)
            }
            str0m::Event::ChannelOpen(id, _) if self.data_channel.is_none() => {
                self.data_channel = Some(id);
                Some(TransportEvent::ChannelOpen)
            }
            str0m::Event::ChannelClose(id) if self.data_channel == Some(id) => {
                self.data_channel = None;
                None
            }
            str0m::Event::ChannelData(data) if !data.binary => {
                String::from_utf8(data.data).ok().map(TransportEvent::Text)
            }
            str0m::Event::Closed => self.closed_event(),
            _ => None,
        }
    }

    /// Queues an Opus packet of the agent's audio. `timestamp` counts samples at 48 kHz; `marker`
    /// starts a talk spurt.
    pub fn send_audio(&mut self, now: Instant, timestamp: u64, marker: bool, payload: &[u8]) {
        self.send_audio_with_level(now, timestamp, marker, payload, None);
    }

    /// [`PeerConnection::send_audio`] with the level of the frame in dBov, from −127 to 0 (RFC
    /// 6464). `None` = without the header extension.
    pub(super) fn send_audio_with_level(
        &mut self,
        now: Instant,
        timestamp: u64,
        marker: bool,
        payload: &[u8],
        audio_level: Option<i8>,
    ) {
        let wallclock = self.wallclock(
            now,
            Duration::from_nanos((u128::from(timestamp) * 1_000_000_000 / 48_000) as u64),
        );
        let Some(track) = &mut self.audio_track else { return };
        track.write(
            &mut self.rtc,
            Packet {
                timestamp,
                wallclock,
                marker,
                is_key_frame: false,
                nackable: false,
                audio_level,
                payload: payload.into(),
            },
        );
        self.next_timeout = now;
    }

    /// Queues a video frame and returns whether it is sent. `timestamp` counts at 90 kHz from the
    /// same zero as the audio timestamp. A frame may be skipped while earlier packets are still
    /// queued ([`Pacer::admit_frame`]).
    pub fn send_video(&mut self, now: Instant, timestamp: u64, frame: &VideoFrame) -> bool {
        let wallclock = self.wallclock(
            now,
            Duration::from_nanos((u128::from(timestamp) * 1_000_000_000 / 90_000) as u64),
        );
        if self.video_track.is_none()
            || !self.rtc.is_connected()
            || !self.pacer.admit_frame(now, frame)
        {
            return false;
        }
        // A frame of several packets (a nod or a lean) is unusable if one is lost, so it is
        // retransmitted. A one-packet frame is repeated or superseded soon, so it is not.
        let nackable =
            frame.is_key_frame || frame.base_layer || vp8::needs_fragmentation(&frame.payload);
        let (pacer, key) = (&mut self.pacer, frame.is_key_frame);
        self.packetizer.packetize(frame, |payload, marker| {
            pacer.push(Packet {
                timestamp,
                wallclock,
                marker,
                is_key_frame: key,
                nackable,
                audio_level: None,
                payload,
            })
        });
        self.next_timeout = now;
        true
    }

    /// Passes the video packets that are due to str0m; true if any was due.
    fn send_due_packets(&mut self, now: Instant) -> bool {
        let Some(track) = &mut self.video_track else { return false };
        let mut any = false;
        while let Some(packet) = self.pacer.pop_due(now) {
            track.write(&mut self.rtc, packet);
            any = true;
        }
        any
    }

    /// Maps a timestamp to an instant, by the clock reference that the first packet set for both
    /// tracks.
    fn wallclock(&mut self, now: Instant, stamp: Duration) -> Instant {
        let (zero, first) = *self.clock_reference.get_or_insert((now, stamp));
        let at = if stamp >= first {
            zero.checked_add(stamp - first)
        } else {
            zero.checked_sub(first - stamp)
        };
        let at = match at {
            Some(at) if at.max(now) - at.min(now) <= MAX_TIMESTAMP_DRIFT => at,
            _ => {
                self.clock_reference = Some((now, stamp));
                now
            }
        };
        at.checked_sub(CLOCK_OFFSET).unwrap_or(at).min(now)
    }

    /// Queues a text frame for the client's data channel; it is sent when the channel is open.
    /// While the client does not read, progress texts are dropped first, oldest first, and counted.
    /// After [`PeerConnection::close`] texts are ignored.
    pub fn send_text(&mut self, now: Instant, text: impl Into<TextMessage>) {
        if self.close_deadline.is_some() {
            return;
        }
        self.send_queue.push(text.into());
        self.next_timeout = now;
    }

    /// Passes queued texts to SCTP; true if any was accepted.
    fn flush_texts(&mut self) -> bool {
        let mut any = false;
        while let (Some(id), Some(text)) = (self.data_channel, self.send_queue.front()) {
            let Some(mut channel) = self.rtc.channel(id) else { break };
            match channel.write(false, text.as_bytes()) {
                Ok(true) => {
                    any = true;
                    self.send_queue.pop_front();
                }
                // A text this long never fits, and it would block all texts behind it.
                Ok(false) if text.len() > MAX_CHANNEL_BUFFER_BYTES => self.send_queue.drop_front(),
                Ok(false) => break,
                Err(_) => self.send_queue.drop_front(),
            }
        }
        any
    }

    /// Closes the connection: sends queued texts (for at most 0.3 s), then RTCP BYE and DTLS
    /// close_notify. Keep polling until [`PeerConnection::is_closed`].
    pub fn close(&mut self, now: Instant) {
        self.close_deadline.get_or_insert(now + PEER_CLOSE_TIMEOUT);
        self.next_timeout = now;
    }

    /// Closes the connection like [`PeerConnection::close`], but does not wait for texts to be
    /// acknowledged.
    pub fn abort(&mut self, now: Instant) {
        self.close_deadline = Some(now);
        self.next_timeout = now;
    }

    /// Whether the connection is closed: it emits nothing further.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.rtc.is_alive()
    }

    /// Advances the closing sequence; true if there is new output to poll.
    fn finish_closing(&mut self, now: Instant) -> bool {
        let Some(deadline) = self.close_deadline.filter(|_| self.rtc.is_alive()) else {
            return false;
        };
        if self.close_sent {
            if now >= deadline {
                self.rtc.disconnect();
            }
            return false;
        }
        let waiting = self
            .data_channel
            .and_then(|id| self.rtc.channel(id))
            .map_or(0, |mut channel| channel.buffered_amount());
        if now < deadline
            && (waiting > 0 || (!self.send_queue.is_empty() && self.data_channel.is_some()))
        {
            return false;
        }
        self.close_sent = true;
        self.close_deadline = Some(now + PEER_CLOSE_TIMEOUT);
        if self.rtc.close().is_err() {
            self.rtc.disconnect();
        }
        true
    }

    pub(super) fn declare_tracks(&mut self) {
        for track in [&mut self.audio_track, &mut self.video_track].into_iter().flatten() {
            track.declare(&mut self.rtc);
        }
    }
}

/// str0m's error text for an offer, without the memory addresses that its parser prints.
fn redact_addresses(text: &str) -> String {
    match text.find("0x") {
        Some(_) => "its lines cannot be read".to_owned(),
        None => text.to_owned(),
    }
}

fn random_hex(digits: usize) -> String {
    let mut text = format!("{:032x}", rand::random::<u128>());
    text.truncate(digits);
    text
}

#[cfg(test)]
#[path = "webrtc_tests.rs"]
pub(crate) mod tests;
