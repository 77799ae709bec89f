//! A client over UDP, built on str0m, in virtual time. A datagram over loopback is in the socket at
//! once.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use engine::transport::socket::{Socket, SocketConfig};
use engine_api::{AcceptedOffer, CallConfig};
use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Output, Rtc};

use super::Harness;

/// A client built on str0m that runs in the harness's time.
pub struct Client {
    rtc: Rtc,
    pub socket: UdpSocket,
    audio: Mid,
    connected: bool,
}

impl Client {
    /// A client whose offer was answered. The agent of the call says nothing.
    pub fn offer(harness: &mut Harness, call: CallConfig) -> Self {
        Self::answered_by(harness, |harness, sdp| harness.offer_call(call, sdp))
    }

    /// A client whose offer this answers.
    pub fn answered_by(
        harness: &mut Harness,
        answer: impl FnOnce(&mut Harness, String) -> AcceptedOffer,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut rtc = Rtc::builder().build(harness.now);
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let mut api = rtc.sdp_api();
        let audio = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let (offer, pending) = api.apply().unwrap();
        let accepted = answer(harness, offer.to_sdp_string());
        rtc.sdp_api()
            .accept_answer(pending, SdpAnswer::from_sdp_string(&accepted.answer).unwrap())
            .unwrap();
        Self { rtc, socket, audio, connected: false }
    }

    /// A client that is in the call, with its id 1.
    pub fn join(harness: &mut Harness, call: CallConfig) -> Self {
        Self::offer(harness, call).connect(harness)
    }

    /// Connects. The call has the id 1.
    pub fn connect(self, harness: &mut Harness) -> Self {
        let mut client = self;
        for _ in 0..5_000 {
            client.exchange(harness.now);
            harness.now += Duration::from_millis(1);
            harness.media_thread.step(harness.now);
            if client.connected && harness.recorder.event_names(1).contains(&"joined".to_owned()) {
                return client;
            }
        }
        panic!("it never connected: {:?}", harness.recorder.event_names(1));
    }

    /// Sends all pending datagrams and handles those received. Returns the number of those sent.
    pub fn exchange(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        self.rtc.handle_input(Input::Timeout(now)).unwrap();
        let to = self.socket.local_addr().unwrap();
        let mut buffer = [0; 2_000];
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Transmit(datagram) => {
                    drop(self.socket.send_to(&datagram.contents, datagram.destination));
                    sent += 1;
                }
                Output::Event(event) => self.connected |= matches!(event, str0m::Event::Connected),
                Output::Timeout(_) => match self.socket.recv_from(&mut buffer) {
                    Ok((n, from)) => {
                        let received = Receive::new(Protocol::Udp, from, to, &buffer[..n]).unwrap();
                        self.rtc.handle_input(Input::Receive(now, received)).unwrap();
                    }
                    Err(_) => return sent,
                },
            }
        }
    }

    /// Sends a packet of the voice: the one with this number, 20 ms each.
    pub fn send_voice(&mut self, now: Instant, n: u64, packet: Vec<u8>) {
        let writer = self.rtc.writer(self.audio).unwrap();
        let pt = writer.payload_params().find(|p| p.spec().codec == Codec::Opus).unwrap().pt();
        writer.write(pt, now, MediaTime::new(n * 960, Frequency::FORTY_EIGHT_KHZ), packet).unwrap();
        self.exchange(now);
    }
}

/// A server's socket.
pub fn loopback_socket() -> Socket {
    let hosts = vec![[127, 0, 0, 1].into()];
    Socket::bind(&SocketConfig { host_addresses: hosts, ..SocketConfig::default() }).unwrap()
}
