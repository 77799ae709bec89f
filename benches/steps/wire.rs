//! Packets out and in: the server's connection, and another str0m as the client. No sockets; virtual time.

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
/// Between two packets of sound, and between two pictures.
const SOUND: Duration = Duration::from_millis(20);
const PICTURE: Duration = Duration::from_millis(40);
/// What is measured at once, before the other end is served: a second of it.
const SECOND: Duration = Duration::from_secs(1);

/// Both ends of a connected call.
struct Line {
    start: Instant,
    now: Instant,
    server: PeerConnection,
    client: Rtc,
    microphone: Mid,
    /// On the way to the client, with the instants of leaving.
    sent: Vec<(Instant, Transmit)>,
    /// The client's channel is open: all handshakes are done.
    up: bool,
    /// Packets of the microphone that the server has handed on.
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

    /// Whole ms since the beginning.
    fn elapsed(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    /// What is due at the server.
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

    /// The server takes datagrams.
    fn take(&mut self, datagrams: &[(Instant, Vec<u8>)]) {
        for (at, datagram) in datagrams {
            self.server.receive(*at, Protocol::Udp, CLIENT, SERVER, datagram);
            self.serve(*at);
        }
    }

    /// The client takes what was sent, and the server what the client says to it.
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

    /// What the client says by now.
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

    /// CPU time of so many sendings, one each `period`; whatever is due at the server meanwhile is part of it.
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

    /// CPU time of so many packets of the client's microphone at the server.
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
    let avatars = Avatars::built_in().expect("the people in the binary");
    let set = Arc::clone(&avatars.as_slice()[0].pose_set);
    let speaking: Vec<VideoFrame> = set
        .manifest()
        .frames
        .iter()
        .filter(|(pose, _)| pose.mouth != 0)
        .map(|(pose, _)| VideoFrame {
            payload: set.frame(set.index(*pose), 0).clone(),
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
