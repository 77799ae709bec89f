//! A client over UDP, built on str0m, in real time.

use std::net::UdpSocket;
use std::time::Duration;

use engine::clock;
use engine_api::AcceptedOffer;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Output, Rtc};

/// Maximum wait for a state.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for a state.
pub async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(TEST_TIMEOUT, async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while !holds() {
            looks.tick().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A client built on str0m, in real time.
pub struct Client {
    pub rtc: Rtc,
    socket: UdpSocket,
    pub events: Vec<str0m::Event>,
    pub channel: Option<str0m::channel::ChannelId>,
    /// Whether it sends STUN checks only, so that DTLS cannot be complete.
    pub withholds_dtls: bool,
}

impl Client {
    pub fn offer() -> (Self, String, str0m::change::SdpPendingOffer) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let mut rtc = Rtc::builder().set_reordering_size_audio(0).build(clock::now());
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let mut api = rtc.sdp_api();
        api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        api.add_channel("chat".into());
        let (offer, pending) = api.apply().unwrap();
        let (events, channel, withholds_dtls) = (Vec::new(), None, false);
        let client = Self { rtc, socket, events, channel, withholds_dtls };
        (client, offer.to_sdp_string(), pending)
    }

    /// Runs the client until `enough` holds for it. Blocks.
    pub fn run_until(&mut self, what: &str, enough: impl Fn(&Self) -> bool) {
        let (begin, mut buffer) = (clock::now(), [0; 2_000]);
        while !enough(self) {
            assert!(clock::now() - begin < TEST_TIMEOUT, "never: {what}");
            loop {
                match self.rtc.poll_output().unwrap() {
                    // The first byte tells the protocols of a connection apart (RFC 7983).
                    Output::Transmit(t)
                        if self.withholds_dtls && (20..=63).contains(&t.contents[0]) => {}
                    Output::Transmit(t) => drop(self.socket.send_to(&t.contents, t.destination)),
                    Output::Event(event) => {
                        if let str0m::Event::ChannelOpen(id, _) = event {
                            self.channel = Some(id);
                        }
                        self.events.push(event);
                    }
                    Output::Timeout(_) => break,
                }
            }
            if let Ok((n, from)) = self.socket.recv_from(&mut buffer) {
                let to = self.socket.local_addr().unwrap();
                let received = Receive::new(Protocol::Udp, from, to, &buffer[..n]).unwrap();
                self.rtc.handle_input(Input::Receive(clock::now(), received)).unwrap();
            }
            self.rtc.handle_input(Input::Timeout(clock::now())).unwrap();
        }
    }

    pub fn texts(&self) -> Vec<String> {
        let text = |e: &str0m::Event| match e {
            str0m::Event::ChannelData(data) => Some(String::from_utf8(data.data.clone()).unwrap()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    pub fn packets(&self) -> usize {
        self.events.iter().filter(|e| matches!(e, str0m::Event::MediaData(_))).count()
    }
}

/// Connects a client whose offer was answered, then runs it until `enough` holds.
pub async fn connect(
    (mut client, pending): (Client, str0m::change::SdpPendingOffer),
    accepted: &AcceptedOffer,
    what: &'static str,
    enough: impl Fn(&Client) -> bool + Send + 'static,
) -> Client {
    let answer = SdpAnswer::from_sdp_string(&accepted.answer).unwrap();
    client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    run_until(client, what, enough).await
}

/// Runs the client until `enough` holds.
pub async fn run_until(
    mut client: Client,
    what: &'static str,
    enough: impl Fn(&Client) -> bool + Send + 'static,
) -> Client {
    let running = move || {
        client.run_until(what, enough);
        client
    };
    tokio::task::spawn_blocking(running).await.unwrap()
}
