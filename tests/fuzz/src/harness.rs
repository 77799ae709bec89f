//! The server's connection behind its own `Demux`, and a client on str0m. Both run without sockets
//! and in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::transport::TransportEvent;
use engine::transport::demux::{Demux, stun_ufrag};
use engine::transport::webrtc::{Certificate, LocalCandidate, PeerConnection, Protocol, Transmit};
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::config::DtlsCert;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::Receive;
use str0m::rtp::{ExtensionValues, RtpWrite};
use str0m::{Candidate, Input, Output, Rtc};

/// Key of the connection in the demultiplexer.
const CALL_KEY: u8 = 1;
/// A fixed ufrag for seeds: the connection's own is random.
pub(crate) const SEED_UFRAG: &str = "seed";
/// Maximum number of outputs of the client per poll.
const MAX_POLL_ROUNDS: usize = 64;
/// Maximum payload, in bytes: the packets of a client fit into the network's packets.
const MAX_PAYLOAD: usize = 1_200;
/// Maximum time until the connection is established, in ms.
const CONNECT_TIMEOUT_MS: usize = 5_000;

/// The client's address, and an unknown one.
pub(crate) fn client_addresses() -> [SocketAddr; 2] {
    [SocketAddr::from(([192, 0, 2, 1], 5_000)), SocketAddr::from(([198, 51, 100, 7], 40_000))]
}

/// The server's address.
pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 6_000))
}

/// The server's ICE candidates.
pub(crate) fn local_candidates() -> [LocalCandidate; 2] {
    [Protocol::Udp, Protocol::Tcp]
        .map(|protocol| LocalCandidate { address: server_address(), protocol })
}

/// The server's certificate.
pub(crate) fn server_certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(|| Certificate::generate().expect("a certificate"))
}

fn client_certificate() -> DtlsCert {
    static CERTIFICATE: OnceLock<DtlsCert> = OnceLock::new();
    let generate = || str0m::crypto::from_feature_flags().dtls_provider.generate_certificate();
    CERTIFICATE.get_or_init(|| generate().expect("a certificate")).clone()
}

/// Both ends of the connection.
pub(crate) struct Harness {
    pub(crate) now: Instant,
    pub(crate) connection: PeerConnection,
    demux: Demux<u8>,
    known_addresses: Vec<SocketAddr>,
    client: Rtc,
    audio: Mid,
    channel: Option<ChannelId>,
    /// Datagrams of the client that have not been delivered.
    pending_datagrams: VecDeque<Vec<u8>>,
    /// Whether the server has accepted any datagram.
    received_any: bool,
    /// The connection's events.
    pub(crate) events: Vec<TransportEvent>,
}

impl Harness {
    /// After the exchange of offer and answer, and before any datagram.
    pub(crate) fn new() -> Self {
        let now = engine::clock::now();
        let mut client =
            Rtc::builder().set_rtp_mode(true).set_dtls_cert(client_certificate()).build(now);
        client.add_local_candidate(
            Candidate::host(client_addresses()[0], "udp").expect("a candidate"),
        );
        let mut api = client.sdp_api();
        let audio = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        api.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        api.add_channel("chat".into());
        let (offer, pending) = api.apply().expect("an offer");
        let (connection, answer) = PeerConnection::accept(
            &offer.to_sdp_string(),
            &local_candidates(),
            server_certificate(),
            now,
        )
        .expect("an answer");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("the answer is read");
        client.sdp_api().accept_answer(pending, answer).expect("the answer fits");
        let mut demux = Demux::new();
        demux.insert(connection.ufrag(), CALL_KEY);
        demux.insert(SEED_UFRAG, CALL_KEY);
        Self {
            now,
            connection,
            demux,
            known_addresses: Vec::new(),
            client,
            audio,
            channel: None,
            pending_datagrams: VecDeque::new(),
            received_any: false,
            events: Vec::new(),
        }
    }

    /// The same after all handshakes, with the data channel open.
    pub(crate) fn connected() -> Self {
        let mut harness = Self::new();
        for _ in 0..CONNECT_TIMEOUT_MS {
            harness.advance(Duration::from_millis(1));
            while let Some(datagram) = harness.next_datagram() {
                harness.deliver(Protocol::Udp, client_addresses()[0], &datagram);
            }
            let open = |event: &TransportEvent| matches!(event, TransportEvent::ChannelOpen);
            if harness.channel.is_some()
                && harness.client.is_connected()
                && harness.events.iter().any(open)
            {
                harness.events.clear();
                return harness;
            }
        }
        panic!("the client did not connect");
    }

    /// The client's next datagram.
    pub(crate) fn next_datagram(&mut self) -> Option<Vec<u8>> {
        self.poll_client();
        self.pending_datagrams.pop_front()
    }

    /// Delivers a datagram to the server, as `MediaThread::handle_datagram` does. Returns whether
    /// the connection accepted it.
    pub(crate) fn deliver(
        &mut self,
        protocol: Protocol,
        source: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        let slot = self.demux.route(self.now, source, datagram);
        let was_known = self.known_addresses.contains(&source);
        assert!(slot.is_none_or(|slot| slot == CALL_KEY), "there is no such call");
        assert!(
            slot.is_none() || was_known || stun_ufrag(datagram).is_some(),
            "a datagram of an unknown client was routed"
        );
        let accepted = slot.is_some()
            && self.connection.receive(self.now, protocol, source, server_address(), datagram);
        if accepted {
            self.demux.learn_address(source, CALL_KEY);
            self.received_any = true;
            if !was_known {
                self.known_addresses.push(source);
            }
        }
        self.poll_server();
        accepted
    }

    /// Advances the time of both ends.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.now += time;
        if self.connection.timeout() <= self.now {
            self.connection.handle_timeout(self.now);
        }
        self.poll_server();
        // Fails if the server was made to send invalid data.
        drop(self.client.handle_input(Input::Timeout(self.now)));
        self.poll_client();
    }

    fn poll_server(&mut self) {
        let mut sent = Vec::new();
        while let Some(event) =
            self.connection.poll(self.now, &mut |transmit: Transmit| sent.push(transmit))
        {
            self.events.push(event);
        }
        assert!(self.connection.timeout() > self.now, "the connection is served endlessly");
        assert!(
            self.received_any || sent.is_empty(),
            "a client without a valid check was sent {} datagrams",
            sent.len()
        );
        for transmit in sent {
            assert!(
                self.known_addresses.contains(&transmit.destination),
                "{} is unknown",
                transmit.destination
            );
            let Ok(receive) = Receive::new(
                Protocol::Udp,
                server_address(),
                client_addresses()[0],
                &transmit.contents,
            ) else {
                continue;
            };
            if transmit.destination == client_addresses()[0] {
                drop(self.client.handle_input(Input::Receive(self.now, receive)));
                self.poll_client();
            }
        }
    }

    fn poll_client(&mut self) {
        for _ in 0..MAX_POLL_ROUNDS {
            match self.client.poll_output() {
                Ok(Output::Transmit(one)) => {
                    self.pending_datagrams.push_back(one.contents.to_vec())
                }
                Ok(Output::Event(str0m::Event::ChannelOpen(id, _))) => self.channel = Some(id),
                Ok(Output::Event(_)) => {}
                Ok(Output::Timeout(at)) if at <= self.now && self.client.is_alive() => {
                    drop(self.client.handle_input(Input::Timeout(self.now)));
                }
                _ => return,
            }
        }
    }

    /// Sends an RTP packet from the client, encrypted with its valid key.
    pub(crate) fn send_rtp(
        &mut self,
        sequence: u64,
        timestamp: u32,
        marker: bool,
        level: Option<i8>,
        payload: &[u8],
    ) {
        let (Some(pt), payload) =
            (self.opus_payload_type(), &payload[..payload.len().min(MAX_PAYLOAD)])
        else {
            return;
        };
        let extensions = ExtensionValues {
            audio_level: level,
            voice_activity: level.map(|level| level > -50),
            abs_send_time: level.map(|_| self.now),
            ..ExtensionValues::default()
        };
        let mut api = self.client.direct_api();
        let Some(stream) = api.stream_tx_by_mid(self.audio, None) else { return };
        stream.write_rtp(
            RtpWrite::new(pt, sequence.into(), timestamp, self.now, payload)
                .marker(marker)
                .ext_vals(extensions),
        );
        drop(self.client.handle_input(Input::Timeout(self.now)));
        self.poll_client();
    }

    fn opus_payload_type(&self) -> Option<Pt> {
        let offered = self.client.media(self.audio)?.remote_pts().to_vec();
        offered.first().copied()
    }

    /// Sends a message from the client on its data channel.
    pub(crate) fn send_text(&mut self, text: &[u8], binary: bool) {
        if let Some(mut channel) = self.channel.and_then(|id| self.client.channel(id)) {
            // A message that does not fit is not sent.
            drop(channel.write(binary, text));
        }
        self.poll_client();
    }
}
