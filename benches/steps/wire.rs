//! Packets in and out: the server's connection, with another str0m instance as the client. No
//! sockets; virtual time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::cpu::{self, CpuTime, bench};
use benches::sound;
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

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 5000);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)), 6000);
/// Interval of audio packets, and of video frames.
const SOUND: Duration = Duration::from_millis(20);
const PICTURE: Duration = Duration::from_millis(40);
/// Measured in one go, before the other end is polled: up to one second of packets.
const SECOND: Duration = Duration::from_secs(1);

/// Both ends of a connected call.
struct Line {
    start: Instant,
    now: Instant,
    server: PeerConnection,
    client: Rtc,
    microphone: Mid,
    /// Datagrams in flight to the client, with their send times.
    sent: Vec<(Instant, Transmit)>,
    /// Whether the client's data channel is open, so that all handshakes are done.
    up: bool,
    /// Number of microphone packets that the server has passed on.
    heard: u64,
}

impl Line {
    fn connected() -> Self {
        let now = clock::now();
        let certificate = Certificate::generate().expect("a certificate");
        let mut client = Rtc::builder().build(now);
        client.add_local_candidate(Candidate::host(CLIENT, "udp").expect("an address"));
        let mut api = client.sdp_api();
        let microphone = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        api.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        api.add_channel("chat".into());
        let (offer, pending) = api.apply().expect("an offer");
        let local = [LocalCandidate { address: SERVER, protocol: Protocol::Udp }];
        let (server, answer) =
            PeerConnection::accept(&offer.to_sdp_string(), &local, &certificate, now).expect("a good offer");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        client.sdp_api().accept_answer(pending, answer).expect("a good answer");
        let sent = Vec::with_capacity(1_024);
        let mut line = Self { start: now, now, server, client, microphone, sent, up: false, heard: 0 };
        while !line.up {
            assert!(line.now - line.start < SECOND * 20, "the ends do not connect");
            line.now += Duration::from_millis(5);
            line.serve(line.now);
            line.exchange();
        }
        line
    }

    /// Whole ms since the start.
    fn elapsed(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    /// Polls the server for everything that is due.
    fn serve(&mut self, now: Instant) {
        let sent = &mut self.sent;
        while let Some(event) = self.server.poll(now, &mut |t| sent.push((now, t))) {
            match black_box(event) {
                TransportEvent::Audio { .. } => self.heard += 1,
                TransportEvent::ChannelOpen => self.up = true,
                _ => {}
            }
        }
    }

    /// Delivers datagrams to the server.
    fn take(&mut self, datagrams: &[(Instant, Vec<u8>)]) {
        for (at, datagram) in datagrams {
            self.server.receive(*at, Protocol::Udp, CLIENT, SERVER, datagram);
            self.serve(*at);
        }
    }

    /// Delivers the server's datagrams to the client, and the client's datagrams to the server.
    fn exchange(&mut self) {
        for (at, datagram) in self.sent.drain(..) {
            let receive =
                Receive::new(Protocol::Udp, SERVER, CLIENT, &datagram.contents).expect("a datagram");
            let taken = self.client.handle_input(Input::Receive(at, receive));
            assert!(taken.is_ok(), "the client is alive");
        }
        let said = self.said();
        self.take(&said);
    }

    /// The client's datagrams that are due now.
    fn said(&mut self) -> Vec<(Instant, Vec<u8>)> {
        let now = self.now;
        self.client.handle_input(Input::Timeout(now)).expect("the client is alive");
        let mut said = Vec::new();
        loop {
            match self.client.poll_output().expect("the client is alive") {
                Output::Transmit(datagram) => said.push((now, datagram.contents.to_vec())),
                Output::Event(event) => drop(event),
                Output::Timeout(at) if at <= now => {
                    self.client.handle_input(Input::Timeout(now)).expect("the client is alive");
                }
                Output::Timeout(_) => return said,
            }
        }
    }

    /// CPU time of `count` sends, one per `period`, including everything else that the server has
    /// to do in that time.
    fn send(
        &mut self,
        mut count: u64,
        period: Duration,
        mut write: impl FnMut(&mut PeerConnection, Instant, u64),
    ) -> Duration {
        let mut total = Duration::ZERO;
        while count > 0 {
            let part = count.min((SECOND.as_millis() / period.as_millis()) as u64);
            count -= part;
            let before = self.sent.len();
            total += cpu::taken(|| {
                for _ in 0..part {
                    self.now += period;
                    let (now, stamp) = (self.now, self.elapsed());
                    write(&mut self.server, now, stamp);
                    self.serve(now);
                }
            });
            let sent = self.sent.len() - before;
            assert!(sent as u64 >= part, "{sent} datagrams left");
            self.exchange();
        }
        total
    }

    /// CPU time of the server for `count` packets of the client's microphone.
    fn receive(&mut self, packets: &[Vec<u8>], mut count: u64) -> Duration {
        let mut total = Duration::ZERO;
        while count > 0 {
            let part = count.min((SECOND.as_millis() / SOUND.as_millis()) as u64);
            count -= part;
            let mut said = Vec::new();
            for _ in 0..part {
                self.now += SOUND;
                let number = self.elapsed() / SOUND.as_millis() as u64;
                let stamp = MediaTime::new(self.elapsed() * 48, Frequency::FORTY_EIGHT_KHZ);
                let writer = self.client.writer(self.microphone).expect("a track");
                let opus =
                    writer.payload_params().find(|p| p.spec().codec == Codec::Opus).expect("Opus").pt();
                let packet = packets[number as usize % packets.len()].as_slice();
                writer.write(opus, self.now, stamp, packet).expect("a packet");
                said.extend(self.said());
            }
            total += cpu::taken(|| self.take(&said));
            self.exchange();
        }
        total
    }
}

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let packets = sound::packets();
    let mut line = Line::connected();
    let mut next = packets.iter().cycle();
    bench(c, "packet out: 20 ms of sound", |count| {
        line.send(count, SOUND, |server, now, stamp| {
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
        line.send(count, PICTURE, |server, now, stamp| {
            if let Some(frame) = next.next() {
                server.send_video(now, stamp * 90, frame);
            }
        })
    });
    bench(c, "packet in: 20 ms of sound", |count| {
        let before = line.heard;
        let taken = line.receive(&packets, count);
        assert!(line.heard - before + 2 >= count, "{} of {count} were heard", line.heard - before);
        taken
    });
}
