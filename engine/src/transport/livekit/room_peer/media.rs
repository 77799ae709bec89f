//! Media and data: what arrives from the network, and what the call sends.

use super::*;

/// What str0m reports.
enum Polled {
    Transport(TransportEvent),
    Packet(Box<RtpPacket>),
    Open(ChannelId),
    Data(ChannelData),
}

impl From<TransportEvent> for Polled {
    fn from(event: TransportEvent) -> Self {
        Self::Transport(event)
    }
}

impl RoomPeer {
    /// Takes a datagram, and the audio in it. Returns false if it does not belong to the connection.
    pub fn receive(
        &mut self,
        now: Instant,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        if !self.peer.receive(now, Protocol::Udp, source, destination, datagram) {
            return false;
        }
        // A tick takes audio before it polls the connection.
        while let Some(Event::RtpPacket(packet)) = self.peer.take_rtp_packet() {
            self.take_packet(now, &packet);
        }
        true
    }

    /// When [`RoomPeer::poll`] is due next.
    #[must_use]
    pub fn timeout(&self) -> Instant {
        self.peer.timeout()
    }

    /// The next event; outgoing datagrams go to `transmit`. Call it until it returns `None` after
    /// every other call.
    pub fn poll(
        &mut self,
        now: Instant,
        transmit: &mut impl FnMut(Transmit),
    ) -> Option<TransportEvent> {
        loop {
            self.channels.flush(&mut self.peer.rtc);
            if let Some(event) = self.events.pop_front() {
                self.peer.next_timeout = now;
                return Some(event);
            }
            match self.peer.poll_with(now, transmit, translate)? {
                Polled::Transport(TransportEvent::Connected) => {
                    self.is_connected = true;
                    self.report_connected();
                }
                Polled::Transport(TransportEvent::BandwidthEstimate(bps)) => {
                    match self.congestion.judge(now, bps) {
                        Verdict::Valid => return Some(TransportEvent::BandwidthEstimate(bps)),
                        Verdict::Doubtful => self.peer.rtc.bwe().reset(RESTART_BITRATE),
                    }
                }
                // The server lost the connection or ended it. Signals say which.
                Polled::Transport(TransportEvent::Closed) => {
                    self.gone_at = self.gone_at.or(Some(now));
                }
                Polled::Transport(event) => {
                    // Of a server that does not report who watches.
                    let is_request = matches!(event, TransportEvent::KeyFrameRequested);
                    self.is_watched |= is_request && !self.is_watching_reported;
                    return Some(event);
                }
                Polled::Packet(packet) => self.take_packet(now, &packet),
                Polled::Open(channel) => {
                    if self.channels.on_open(channel) {
                        self.peer.set_data_channel(channel);
                        return Some(TransportEvent::ChannelOpen);
                    }
                }
                Polled::Data(data) => self.take_data(now, &data),
            }
        }
    }

    fn take_packet(&mut self, now: Instant, packet: &RtpPacket) {
        if Some(packet.header.payload_type) != self.peer.opus_pt || packet.payload.is_empty() {
            return;
        }
        let ssrc = packet.header.ssrc;
        let Some(mid) = self.peer.rtc.direct_api().stream_rx(&ssrc).map(|stream| stream.mid())
        else {
            return;
        };
        let timestamp = packet.time.rebase(Frequency::FORTY_EIGHT_KHZ).numer();
        let payload = Bytes::copy_from_slice(&packet.payload);
        self.audio.push(now, mid, *packet.seq_no, timestamp, payload);
    }

    fn take_data(&mut self, now: Instant, data: &ChannelData) {
        if !data.binary {
            return;
        }
        let people = &self.people;
        let is_allowed = |sender: &str| people.is_known(sender);
        match self.channels.receive(now, data.id, &data.data, is_allowed) {
            Some(Received::Message(text)) => self.events.push_back(TransportEvent::Text(text)),
            Some(Received::Request(request)) => self.report(RoomEvent::Request(request)),
            None => {}
        }
    }

    /// Appends the next audio of people to `pcm`, 16 kHz mono. Returns the time of its end.
    pub fn pull_audio(&mut self, now: Instant, pcm: &mut Vec<i16>) -> Option<Instant> {
        if self.is_connected {
            self.find_path(now);
        }
        let end = self.audio.pull(now, pcm)?;
        for report in self.audio.take_reports() {
            let owner = self.people.owner_of(&report.track);
            if let Some(event) = self.speakers.apply(report, owner.map(|person| &*person.name)) {
                self.report(event);
                self.peer.next_timeout = now;
            }
        }
        Some(end)
    }

    /// Sends a frame of the agent's audio. Its level lets clients show who speaks.
    pub fn send_audio(&mut self, now: Instant, frame: &AudioFrame<'_>) {
        if frame.packet.is_empty() {
            return;
        }
        let level = if frame.is_within_segment { dbfs(frame.pcm).round() as i8 } else { -127 };
        let (timestamp, marker) = (frame.timestamp, frame.starts_talk_spurt);
        self.peer.send_audio_with_level(now, timestamp, marker, frame.packet, Some(level));
    }

    /// Sends a video frame if the path allows it. Returns whether it was sent.
    pub fn send_video(&mut self, now: Instant, timestamp: u64, frame: &VideoFrame) -> bool {
        let is_sent = self.is_watched && self.peer.send_video(now, timestamp, frame);
        if is_sent && frame.is_key_frame && !self.is_video_published {
            self.is_video_published = true;
            self.is_watched = self.is_watching_reported;
        }
        is_sent
    }

    /// Sends a message of our own protocol to everybody.
    pub fn send_text(&mut self, now: Instant, text: TextMessage) {
        let TextMessage { body, priority } = text;
        let value = Value::User(proto::UserPacket {
            payload: body.into_bytes(),
            topic: Some(MESSAGE_TOPIC.to_owned()),
            ..proto::UserPacket::default()
        });
        self.channels.push(OutgoingPacket { priority, ..OutgoingPacket::to_all(value) });
        self.peer.next_timeout = now;
    }

    /// Sends what clients of LiveKit expect of an event: captions.
    pub fn send_event(&mut self, now: Instant, event: &EventEnvelope, unix_micros: u64) {
        let context = CaptionContext {
            agent: &self.agent,
            speaker: self.speaker(),
            unix_ms: i64::try_from(unix_micros / 1_000).unwrap_or(i64::MAX),
        };
        let channels = &mut self.channels;
        self.captions.on_event(event, &context, |packet| channels.push(packet));
        self.peer.next_timeout = now;
    }

    /// The answer to this turn goes to the chat too: it answers a message.
    pub fn expect_chat_answer(&mut self, turn: u32) {
        self.captions.expect_chat_answer(turn);
    }

    /// What is being captioned, for another participant that continues it.
    pub(crate) fn take_captions(&mut self) -> Captions {
        std::mem::take(&mut self.captions)
    }

    /// Continues the captions of an earlier participant of the same call.
    pub(crate) fn continue_captions(&mut self, captions: Captions) {
        self.captions = captions.for_new_readers();
    }

    /// Captions the agent's words that were heard so far.
    pub fn caption_words(
        &mut self,
        now: Instant,
        utterance: UtteranceId,
        text: &str,
        unix_micros: u64,
    ) {
        let unix_ms = i64::try_from(unix_micros / 1_000).unwrap_or(i64::MAX);
        let context = CaptionContext { agent: &self.agent, speaker: None, unix_ms };
        let (channels, next_timeout) = (&mut self.channels, &mut self.peer.next_timeout);
        self.captions.on_words(utterance, text, &context, |packet| {
            channels.push(packet);
            *next_timeout = now;
        });
    }

    /// The person whose words the STT hears: the active speaker, or the only one with a voice.
    fn speaker(&self) -> Option<Author> {
        let track = self.audio.active_track()?;
        let person = self.people.owner_of(track)?;
        Some(Author { identity: person.identity.clone(), track: track.to_owned() })
    }

    /// Shows what the agent does.
    pub fn set_state(&mut self, state: AgentState) {
        if self.state.replace(state) == Some(state) {
            return;
        }
        let attribute = (STATE_ATTRIBUTE.to_owned(), state_name(state).to_owned());
        self.request(Request::UpdateMetadata(proto::UpdateParticipantMetadata {
            attributes: HashMap::from([attribute]),
            ..proto::UpdateParticipantMetadata::default()
        }));
    }

    /// Answers a remote procedure call.
    pub fn answer_rpc(
        &mut self,
        now: Instant,
        caller: &str,
        request_id: &str,
        outcome: Result<(), String>,
    ) {
        self.channels.answer_rpc(caller, request_id, outcome);
        self.peer.next_timeout = now;
    }

    /// Ends what is open and closes the connection. Keep polling until [`RoomPeer::is_closed`].
    pub fn close(&mut self, now: Instant) {
        let context = CaptionContext { agent: &self.agent, speaker: None, unix_ms: 0 };
        let channels = &mut self.channels;
        self.captions.close(&context, |packet| channels.push(packet));
        self.channels.flush(&mut self.peer.rtc);
        self.peer.close(now);
    }

    /// Closes the connection without waiting for what is queued.
    pub fn abort(&mut self, now: Instant) {
        self.peer.abort(now);
    }

    /// Whether the connection is closed: it emits nothing further.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }
}

fn translate(peer: &mut PeerConnection, now: Instant, event: Event) -> Option<Polled> {
    match event {
        Event::RtpPacket(packet) => Some(Polled::Packet(Box::new(packet))),
        Event::ChannelOpen(channel, _) => Some(Polled::Open(channel)),
        Event::ChannelData(data) => Some(Polled::Data(data)),
        Event::ChannelClose(_) => None,
        other => peer.translate(now, other).map(Polled::Transport),
    }
}
