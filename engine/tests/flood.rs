//! A flood of unknown datagrams beside a call, in virtual time. A datagram over loopback is in the
//! socket at once. Those that exceed the receive buffer of a stock kernel are injected before the
//! socket.

mod support;

use std::net::UdpSocket;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use engine::transport::socket::{Socket, SocketConfig};
use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Output, Rtc};
use support::{Harness, call_config};

/// Unknown datagrams before each tick: 150,000 per second.
const UNKNOWN_DATAGRAMS: usize = 1_500;
/// Maximum number of bytes that the kernel accounts for a small datagram.
const KERNEL_BYTES_PER_DATAGRAM: usize = 1_280;

/// A client built on str0m that runs in the harness's time.
struct Client {
    rtc: Rtc,
    socket: UdpSocket,
    audio: Mid,
    connected: bool,
}

impl Client {
    fn join(harness: &mut Harness) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut rtc = Rtc::builder().build(harness.now);
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let mut api = rtc.sdp_api();
        let audio = api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let (offer, pending) = api.apply().unwrap();
        let accepted = harness.offer_call(call_config(1), offer.to_sdp_string());
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&accepted.answer).unwrap()).unwrap();
        let mut client = Self { rtc, socket, audio, connected: false };
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

    /// Sends all pending datagrams and handles those received.
    fn exchange(&mut self, now: Instant) {
        self.rtc.handle_input(Input::Timeout(now)).unwrap();
        let to = self.socket.local_addr().unwrap();
        let mut buffer = [0; 2_000];
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Transmit(datagram) => {
                    drop(self.socket.send_to(&datagram.contents, datagram.destination))
                }
                Output::Event(event) => self.connected |= matches!(event, str0m::Event::Connected),
                Output::Timeout(_) => match self.socket.recv_from(&mut buffer) {
                    Ok((n, from)) => {
                        let received = Receive::new(Protocol::Udp, from, to, &buffer[..n]).unwrap();
                        self.rtc.handle_input(Input::Receive(now, received)).unwrap();
                    }
                    Err(_) => return,
                },
            }
        }
    }

    fn send_voice(&mut self, now: Instant, n: u64) {
        let writer = self.rtc.writer(self.audio).unwrap();
        let pt = writer.payload_params().find(|p| p.spec().codec == Codec::Opus).unwrap().pt();
        writer
            .write(pt, now, MediaTime::new(n * 960, Frequency::FORTY_EIGHT_KHZ), vec![0xf8, n as u8, 3])
            .unwrap();
        self.exchange(now);
    }
}

#[test]
fn a_tick_reads_all_that_a_flood_brought_and_the_call_behind_it() {
    let hosts = vec![[127, 0, 0, 1].into()];
    let mut socket =
        Socket::bind(&SocketConfig { host_addresses: hosts, ..SocketConfig::default() }).unwrap();
    let port = socket.candidates()[0].address;
    let held = UNKNOWN_DATAGRAMS.min(socket.receive_buffer().unwrap() / KERNEL_BYTES_PER_DATAGRAM);
    let feed = socket.injector();
    let mut harness = Harness::with_socket(socket);
    let mut client = Client::join(&mut harness);
    // After the handshakes, the thread reads its socket only at its ticks.
    for _ in 0..150 {
        client.exchange(harness.now);
        harness.run_for(Duration::from_millis(10));
    }
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let source = stranger.local_addr().unwrap();
    let mut spent = Vec::new();
    for n in 0..50 {
        let (strange, windows) =
            (harness.stats.unknown_datagrams.load(Relaxed), harness.stats.vad_windows.load(Relaxed));
        for _ in held..UNKNOWN_DATAGRAMS {
            feed.send((source, vec![0x55; 60])).unwrap();
        }
        for _ in 0..held {
            stranger.send_to(&[0x55; 60], port).unwrap();
        }
        client.send_voice(harness.now, 2 * n);
        client.send_voice(harness.now, 2 * n + 1);
        let tick = harness.media_thread.wake_at().unwrap().max(harness.now);
        let started = ThreadTime::now();
        harness.media_thread.step(tick);
        spent.push(started.elapsed());
        harness.now = tick;
        assert_eq!(
            harness.stats.unknown_datagrams.load(Relaxed) - strange,
            UNKNOWN_DATAGRAMS as u64,
            "after {n} ticks"
        );
        harness.run_for(Duration::from_millis(40) - Duration::from_micros(1));
        // Two packets are 40 ms, and a VAD window is 32 ms.
        assert!(harness.stats.vad_windows.load(Relaxed) > windows, "the call was not heard after {n} ticks");
    }
    // The median, because the kernel charges some of an interrupting program's time to the
    // interrupted tick.
    spent.sort();
    let half = Duration::from_millis(5);
    let median = spent[spent.len() / 2];
    assert!(
        median < half,
        "a tick with {UNKNOWN_DATAGRAMS} strays, {held} of the kernel, takes {median:?} of CPU time"
    );
}
