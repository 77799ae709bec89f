//! Packets in and out: the server's connection, with another str0m instance as the client. No
//! sockets; virtual time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::cpu::{self, CpuTime, bench};
use benches::recording;
use criterion::Criterion;
use engine::clock;
use engine::show::Avatars;
use engine::transport::webrtc::{Certificate, LocalCandidate, PeerConnection, Protocol, Transmit};
use engine::transport::{TransportEvent, VideoFrame};
use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::Receive;
use str0m::{Candidate, Input, Output, Rtc};

const CLIENT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 5000);
const SERVER_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)), 6000);
/// Interval of audio packets, and of video frames.
const AUDIO_INTERVAL: Duration = Duration::from_millis(20);
const VIDEO_INTERVAL: Duration = Duration::from_millis(40);
/// Measured in one go, before the other end is polled: up to one second of packets.
const MEASURED_STRETCH: Duration = Duration::from_secs(1);

/// Both ends of a connected call.
struct ConnectedPair {
    start: Instant,
    now: Instant,
    server: PeerConnection,
    client: Rtc,
    audio_mid: Mid,
    /// Datagrams in flight to the client, with their send times.
    in_flight: Vec<(Instant, Transmit)>,
    /// Whether the client's data channel is open, so that all handshakes are done.
    channel_open: bool,
    /// Number of microphone packets that the server has passed on.
    received_packets: u64,
}

impl ConnectedPair {
    fn connected() -> Self {
        let now = clock::now();
        let certificate = Certificate::generate().expect("a certificate");
        let mut client = Rtc::builder().build(now);
        client.add_local_candidate(Candidate::host(CLIENT_ADDRESS, "udp").expect("an address"));
        let mut api = client.sdp_api();
        let microphone = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        api.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        api.add_channel("chat".into());
        let (offer, pending) = api.apply().expect("an offer");
        let local = [LocalCandidate { address: SERVER_ADDRESS, protocol: Protocol::Udp }];
        let (server, answer) =
            PeerConnection::accept(&offer.to_sdp_string(), &local, &certificate, now)
                .expect("a good offer");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        client.sdp_api().accept_answer(pending, answer).expect("a good answer");
        let sent = Vec::with_capacity(1_024);
        let mut pair = Self {
            start: now,
            now,
            server,
            client,
            audio_mid: microphone,
            in_flight: sent,
            channel_open: false,
            received_packets: 0,
        };
        while !pair.channel_open {
            assert!(pair.now - pair.start < MEASURED_STRETCH * 20, "the ends do not connect");
            pair.now += Duration::from_millis(5);
            pair.poll_server(pair.now);
            pair.exchange();
        }
        pair
    }

    /// Whole ms since the start.
    fn elapsed_ms(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    /// Polls the server for everything that is due.
    fn poll_server(&mut self, now: Instant) {
        let sent = &mut self.in_flight;
        while let Some(event) = self.server.poll(now, &mut |t| sent.push((now, t))) {
            match black_box(event) {
                TransportEvent::Audio { .. } => self.received_packets += 1,
                TransportEvent::ChannelOpen => self.channel_open = true,
                _ => {}
            }
        }
    }

    /// Delivers datagrams to the server.
    fn deliver_to_server(&mut self, datagrams: &[(Instant, Vec<u8>)]) {
        for (at, datagram) in datagrams {
            self.server.receive(*at, Protocol::Udp, CLIENT_ADDRESS, SERVER_ADDRESS, datagram);
            self.poll_server(*at);
        }
    }

    /// Delivers the server's datagrams to the client, and the client's datagrams to the server.
    fn exchange(&mut self) {
        for (at, datagram) in self.in_flight.drain(..) {
            let receive =
                Receive::new(Protocol::Udp, SERVER_ADDRESS, CLIENT_ADDRESS, &datagram.contents)
                    .expect("a datagram");
            let taken = self.client.handle_input(Input::Receive(at, receive));
            assert!(taken.is_ok(), "the client is alive");
        }
        let datagrams = self.poll_client();
        self.deliver_to_server(&datagrams);
    }

    /// The client's datagrams that are due now.
    fn poll_client(&mut self) -> Vec<(Instant, Vec<u8>)> {
        let now = self.now;
        self.client.handle_input(Input::Timeout(now)).expect("the client is alive");
        let mut datagrams = Vec::new();
        loop {
            match self.client.poll_output().expect("the client is alive") {
                Output::Transmit(datagram) => datagrams.push((now, datagram.contents.to_vec())),
                Output::Event(event) => drop(event),
                Output::Timeout(at) if at <= now => {
                    self.client.handle_input(Input::Timeout(now)).expect("the client is alive");
                }
                Output::Timeout(_) => return datagrams,
            }
        }
    }

    /// CPU time of `count` sends, one per `period`, including everything else that the server has
    /// to do in that time.
    fn time_send(
        &mut self,
        mut count: u64,
        period: Duration,
        mut write: impl FnMut(&mut PeerConnection, Instant, u64),
    ) -> Duration {
        let mut total = Duration::ZERO;
        while count > 0 {
            let part = count.min((MEASURED_STRETCH.as_millis() / period.as_millis()) as u64);
            count -= part;
            let before = self.in_flight.len();
            total += cpu::measure(|| {
                for _ in 0..part {
                    self.now += period;
                    let (now, stamp) = (self.now, self.elapsed_ms());
                    write(&mut self.server, now, stamp);
                    self.poll_server(now);
                }
            });
            let sent = self.in_flight.len() - before;
            assert!(sent as u64 >= part, "{sent} datagrams left");
            self.exchange();
        }
        total
    }

    /// CPU time of the server for `count` packets of the client's microphone.
    fn time_receive(&mut self, packets: &[Vec<u8>], mut count: u64) -> Duration {
        let mut total = Duration::ZERO;
        while count > 0 {
            let part =
                count.min((MEASURED_STRETCH.as_millis() / AUDIO_INTERVAL.as_millis()) as u64);
            count -= part;
            let mut datagrams = Vec::new();
            for _ in 0..part {
                self.now += AUDIO_INTERVAL;
                let number = self.elapsed_ms() / AUDIO_INTERVAL.as_millis() as u64;
                let stamp = MediaTime::new(self.elapsed_ms() * 48, Frequency::FORTY_EIGHT_KHZ);
                let writer = self.client.writer(self.audio_mid).expect("a track");
                let opus = writer
                    .payload_params()
                    .find(|p| p.spec().codec == Codec::Opus)
                    .expect("Opus")
                    .pt();
                let packet = packets[number as usize % packets.len()].as_slice();
                writer.write(opus, self.now, stamp, packet).expect("a packet");
                datagrams.extend(self.poll_client());
            }
            total += cpu::measure(|| self.deliver_to_server(&datagrams));
            self.exchange();
        }
        total
    }
}

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let packets = recording::opus_packets();
    let mut pair = ConnectedPair::connected();
    let mut next = packets.iter().cycle();
    bench(c, "packet out: 20 ms of sound", |count| {
        pair.time_send(count, AUDIO_INTERVAL, |server, now, stamp| {
            if let Some(packet) = next.next() {
                server.send_audio(now, stamp * 48, false, packet);
            }
        })
    });
    let avatars = Avatars::built_in().expect("the built-in avatars");
    let set = Arc::clone(&avatars.as_slice()[0].pose_set);
    let speaking: Vec<VideoFrame> = set
        .manifest()
        .frames
        .iter()
        .filter(|(pose, _)| pose.mouth != 0)
        .map(|(pose, _)| VideoFrame {
            payload: set.frame(set.frame_index(*pose), 0).clone(),
            is_key_frame: false,
            base_layer: false,
        })
        .collect();
    let mut next = speaking.iter().cycle();
    bench(c, "packet out: a picture of moving lips", |count| {
        pair.time_send(count, VIDEO_INTERVAL, |server, now, stamp| {
            if let Some(frame) = next.next() {
                server.send_video(now, stamp * 90, frame);
            }
        })
    });
    bench(c, "packet in: 20 ms of sound", |count| {
        let before = pair.received_packets;
        let taken = pair.time_receive(&packets, count);
        assert!(
            pair.received_packets - before + 2 >= count,
            "{} of {count} were heard",
            pair.received_packets - before
        );
        taken
    });
}
