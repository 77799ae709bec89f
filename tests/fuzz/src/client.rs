//! The server's connection behind its own `Demux`, and a client on str0m. Both run without sockets
//! and in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::transport::TransportEvent;
use engine::transport::socket::{Demux, stun_ufrag};
use engine::transport::webrtc::{Certificate, LocalCandidate, PeerConnection, Protocol, Transmit};
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::config::DtlsCert;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::Receive;
use str0m::rtp::{ExtensionValues, RtpWrite};
use str0m::{Candidate, Input, Output, Rtc};

/// Key of the connection in the demultiplexer.
const CALL: u8 = 1;
/// A fixed ufrag for seeds: the connection's own is random.
pub(crate) const NAME: &str = "seed";
/// Maximum number of outputs of the client per poll.
const ROUNDS: usize = 64;
/// Maximum payload, in bytes: the packets of a client fit into the network's packets.
const PAYLOAD: usize = 1_200;
/// Maximum time until the connection is established, in ms.
const PATIENCE: usize = 5_000;

/// The client's address, and a stranger's.
pub(crate) fn addresses() -> [SocketAddr; 2] {
    [SocketAddr::from(([192, 0, 2, 1], 5_000)), SocketAddr::from(([198, 51, 100, 7], 40_000))]
}

/// The server's address.
pub(crate) fn server() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 6_000))
}

/// The server's ICE candidates.
pub(crate) fn local() -> [LocalCandidate; 2] {
    [Protocol::Udp, Protocol::Tcp].map(|protocol| LocalCandidate { address: server(), protocol })
}

/// The server's certificate.
pub(crate) fn certificate() -> &'static Certificate {
    static ONE: OnceLock<Certificate> = OnceLock::new();
    ONE.get_or_init(|| Certificate::generate().expect("a certificate"))
}

fn clients_certificate() -> DtlsCert {
    static ONE: OnceLock<DtlsCert> = OnceLock::new();
    let made = || str0m::crypto::from_feature_flags().dtls_provider.generate_certificate();
    ONE.get_or_init(|| made().expect("a certificate")).clone()
}

/// Both ends of the connection.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) connection: PeerConnection,
    demux: Demux<u8>,
    known: Vec<SocketAddr>,
    client: Rtc,
    audio: Mid,
    channel: Option<ChannelId>,
    /// Datagrams of the client that have not been delivered.
    outbox: VecDeque<Vec<u8>>,
    /// Whether the server has accepted any datagram.
    taken: bool,
    /// The connection's events.
    pub(crate) events: Vec<TransportEvent>,
}

impl World {
    /// After the exchange of offer and answer, and before any datagram.
    pub(crate) fn new() -> Self {
        let now = engine::clock::now();
        let mut client = Rtc::builder().set_rtp_mode(true).set_dtls_cert(clients_certificate()).build(now);
        client.add_local_candidate(Candidate::host(addresses()[0], "udp").expect("a candidate"));
        let mut api = client.sdp_api();
        let audio = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        api.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        api.add_channel("chat".into());
        let (offer, pending) = api.apply().expect("an offer");
        let (connection, answer) =
            PeerConnection::accept(&offer.to_sdp_string(), &local(), certificate(), now).expect("an answer");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("the answer is read");
        client.sdp_api().accept_answer(pending, answer).expect("the answer fits");
        let mut demux = Demux::new();
        demux.insert(connection.ufrag(), CALL);
        demux.insert(NAME, CALL);
        Self {
            now,
            connection,
            demux,
            known: Vec::new(),
            client,
            audio,
            channel: None,
            outbox: VecDeque::new(),
            taken: false,
            events: Vec::new(),
        }
    }

    /// The same after all handshakes, with the data channel open.
    pub(crate) fn connected() -> Self {
        let mut world = Self::new();
        for _ in 0..PATIENCE {
            world.pass(Duration::from_millis(1));
            while let Some(datagram) = world.next() {
                world.deliver(Protocol::Udp, addresses()[0], &datagram);
            }
            let open = |event: &TransportEvent| matches!(event, TransportEvent::ChannelOpen);
            if world.channel.is_some() && world.client.is_connected() && world.events.iter().any(open) {
                world.events.clear();
                return world;
            }
        }
        panic!("the client did not connect");
    }

    /// The client's next datagram.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.serve_client();
        self.outbox.pop_front()
    }

    /// Delivers a datagram to the server, as `MediaThread::handle_datagram` does. Returns whether
    /// the connection accepted it.
    pub(crate) fn deliver(&mut self, protocol: Protocol, source: SocketAddr, datagram: &[u8]) -> bool {
        let slot = self.demux.route(self.now, source, datagram);
        let learnt = self.known.contains(&source);
        assert!(slot.is_none_or(|slot| slot == CALL), "there is no such call");
        assert!(
            slot.is_none() || learnt || stun_ufrag(datagram).is_some(),
            "a stranger's datagram was routed"
        );
        let taken = slot.is_some() && self.connection.receive(self.now, protocol, source, server(), datagram);
        if taken {
            self.demux.learn_address(source, CALL);
            self.taken = true;
            if !learnt {
                self.known.push(source);
            }
        }
        self.serve_server();
        taken
    }

    /// Advances the time of both ends.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.connection.timeout() <= self.now {
            self.connection.handle_timeout(self.now);
        }
        self.serve_server();
        // Fails if the server was made to send invalid data.
        drop(self.client.handle_input(Input::Timeout(self.now)));
        self.serve_client();
    }

    fn serve_server(&mut self) {
        let mut sent = Vec::new();
        while let Some(event) = self.connection.poll(self.now, &mut |one: Transmit| sent.push(one)) {
            self.events.push(event);
        }
        assert!(self.connection.timeout() > self.now, "the connection would be served without end");
        assert!(self.taken || sent.is_empty(), "who proved nothing was sent {} datagrams", sent.len());
        for one in sent {
            assert!(self.known.contains(&one.destination), "{} was never heard of", one.destination);
            let Ok(receive) = Receive::new(Protocol::Udp, server(), addresses()[0], &one.contents) else {
                continue;
            };
            if one.destination == addresses()[0] {
                drop(self.client.handle_input(Input::Receive(self.now, receive)));
                self.serve_client();
            }
        }
    }

    fn serve_client(&mut self) {
        for _ in 0..ROUNDS {
            match self.client.poll_output() {
                Ok(Output::Transmit(one)) => self.outbox.push_back(one.contents.to_vec()),
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
        let (Some(pt), payload) = (self.opus(), &payload[..payload.len().min(PAYLOAD)]) else { return };
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
        self.serve_client();
    }

    fn opus(&self) -> Option<Pt> {
        let offered = self.client.media(self.audio)?.remote_pts().to_vec();
        offered.first().copied()
    }

    /// Sends a message from the client on its data channel.
    pub(crate) fn send_text(&mut self, text: &[u8], binary: bool) {
        if let Some(mut channel) = self.channel.and_then(|id| self.client.channel(id)) {
            // A message that does not fit is not sent.
            drop(channel.write(binary, text));
        }
        self.serve_client();
    }
}
