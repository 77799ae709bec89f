//! Floods of a media thread beside a call, in virtual time: unknown datagrams, those of a client,
//! datagrams by TCP, messages and offers. A datagram over loopback is in the socket at once. Those
//! that exceed the receive buffer of a stock kernel are injected before the socket.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use conversation::id::ConversationId;
use cpu_time::ThreadTime;
use engine::messages::{Message, OfferRequest};
use engine::transport::tcp;
use engine_api::HangUp;
use support::virtual_client::{Client, loopback_socket};
use support::{Harness, call_config};
use tokio::sync::oneshot;

/// Unknown datagrams before each tick: 150,000 per second.
const UNKNOWN_DATAGRAMS: usize = 1_500;
/// Maximum number of bytes that the kernel accounts for a small datagram.
const KERNEL_BYTES_PER_DATAGRAM: usize = 1_280;

/// Sends the packet with this number.
fn send_voice(client: &mut Client, harness: &Harness, n: u64) {
    client.send_voice(harness.now, n, vec![0xf8, n as u8, 3]);
}

#[test]
fn a_tick_reads_all_that_a_flood_brought_and_the_call_behind_it() {
    let mut socket = loopback_socket();
    let port = socket.candidates()[0].address;
    let held = UNKNOWN_DATAGRAMS.min(socket.receive_buffer().unwrap() / KERNEL_BYTES_PER_DATAGRAM);
    let feed = socket.injector();
    let mut harness = Harness::with_socket(socket);
    let mut client = Client::join(&mut harness, call_config(1));
    // After the handshakes, the thread reads its socket only at its ticks.
    for _ in 0..150 {
        client.exchange(harness.now);
        harness.run_for(Duration::from_millis(10));
    }
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let source = stranger.local_addr().unwrap();
    let mut spent = Vec::new();
    for n in 0..50 {
        let (strange, windows) = (
            harness.stats.unknown_datagrams.load(Relaxed),
            harness.stats.vad_windows.load(Relaxed),
        );
        for _ in held..UNKNOWN_DATAGRAMS {
            feed.send((source, vec![0x55; 60])).unwrap();
        }
        for _ in 0..held {
            stranger.send_to(&[0x55; 60], port).unwrap();
        }
        send_voice(&mut client, &harness, 2 * n);
        send_voice(&mut client, &harness, 2 * n + 1);
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
        assert!(
            harness.stats.vad_windows.load(Relaxed) > windows,
            "the call was not heard after {n} ticks"
        );
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

const MS: Duration = Duration::from_millis(1);

/// A clock that advances by a millisecond each time it is read.
fn running_clock(start: Instant) -> impl Fn() -> Instant {
    let readings = Cell::new(0);
    move || {
        readings.set(readings.get() + 1);
        start + MS * readings.get()
    }
}

/// Sends the thread a request that it answers at once.
fn send_request(harness: &Harness) -> oneshot::Receiver<HangUp> {
    let (reply, answer) = oneshot::channel();
    let request = Message::HangUp {
        conversation: ConversationId(9),
        connection: "no such connection".into(),
        reply,
    };
    assert!(harness.inbox.requests.send(request).is_ok());
    answer
}

#[test]
fn a_flood_delays_a_tick_by_half_of_it_and_is_read_in_the_next_steps() {
    let mut socket = loopback_socket();
    let feed = socket.injector();
    let mut harness = Harness::with_socket(socket);
    let _client = harness.start_call(call_config(1), &[], "");
    harness.run_for(100 * MS);
    for _ in 0..4_000 {
        feed.send((SocketAddr::from(([127, 0, 0, 1], 9)), vec![0x55; 60])).unwrap();
    }
    let tick = harness.now + 10 * MS;
    let (unknown, ticks) =
        (harness.stats.unknown_datagrams.load(Relaxed), harness.stats.ticks.load(Relaxed));
    assert!(harness.media_thread.step_with_clock(tick, &running_clock(tick)), "there are more");
    // The first 256 are read in any case. Then the clock is read once for 32 datagrams, and stands
    // at 5 ms after four times 32.
    assert_eq!(harness.stats.unknown_datagrams.load(Relaxed) - unknown, 256 + 4 * 32);
    assert_eq!(harness.stats.ticks.load(Relaxed) - ticks, 1, "the tick follows in the same step");
    while harness.media_thread.step(tick) {}
    assert_eq!(harness.stats.unknown_datagrams.load(Relaxed) - unknown, 4_000);
}

#[test]
fn a_client_that_floods_its_own_connection_is_held_to_its_rate_and_heard_afterwards() {
    let mut socket = loopback_socket();
    let feed = socket.injector();
    let mut harness = Harness::with_socket(socket);
    let mut client = Client::join(&mut harness, call_config(1));
    for _ in 0..150 {
        client.exchange(harness.now);
        harness.run_for(10 * MS);
    }
    let limited = |harness: &Harness| harness.stats.rate_limited_datagrams.load(Relaxed);
    assert_eq!(limited(&harness), 0);
    // RTP packets that cannot be decrypted, from the address that the connection has learned.
    let source = client.socket.local_addr().unwrap();
    for n in 0..10_000_u16 {
        let mut packet = vec![0x80, 111];
        packet.extend(n.to_be_bytes());
        packet.resize(60, 1);
        feed.send((source, packet)).unwrap();
    }
    let tick = harness.now + 10 * MS;
    while harness.media_thread.step(tick) {}
    assert_eq!(limited(&harness), 10_000 - 2_048, "the burst is passed on");
    harness.run_for(1_000 * MS);
    let windows = harness.stats.vad_windows.load(Relaxed);
    send_voice(&mut client, &harness, 0);
    send_voice(&mut client, &harness, 1);
    harness.run_for(40 * MS);
    assert!(harness.stats.vad_windows.load(Relaxed) > windows, "the client is heard again");
    assert_eq!(limited(&harness), 10_000 - 2_048);
}

#[test]
fn datagrams_by_tcp_displace_no_request_and_no_stage_event() {
    let mut harness = Harness::new();
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let datagram =
        || tcp::Datagram { source: address, destination: address, contents: vec![0x55; 60] };
    let dropped = (0..10_000).filter(|_| harness.inbox.tcp.send(datagram()).is_err()).count();
    assert_eq!(dropped, 10_000 - harness.inbox.tcp.channel().capacity);
    let mut answer = send_request(&harness);
    harness.media_thread.step(harness.now);
    assert_eq!(answer.try_recv(), Ok(HangUp::NotFound), "the first step answers");
    assert_eq!(harness.stats.unknown_datagrams.load(Relaxed), 1_024, "a step reads a share");
    assert_eq!(harness.inbox.requests.full_count() + harness.inbox.stage_events.full_count(), 0);
    while harness.media_thread.step(harness.now) {}
    let taken = harness.inbox.tcp.channel().capacity as u64;
    assert_eq!(harness.stats.unknown_datagrams.load(Relaxed), taken);
}

#[test]
fn messages_are_read_for_a_quarter_of_a_tick_and_then_in_the_next_steps() {
    let mut harness = Harness::new();
    harness.media_thread.step(harness.now);
    let mut answers: Vec<_> = (0..100).map(|_| send_request(&harness)).collect();
    let mut answered = || answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
    assert!(
        harness.media_thread.step_with_clock(harness.now, &running_clock(harness.now)),
        "there are more"
    );
    // The first is read in any case; the clock stands at 1, 2 and 3 ms before the next ones.
    assert_eq!(answered(), 3);
    while harness.media_thread.step(harness.now) {}
    assert_eq!(answered(), 97);
}

#[test]
fn one_offer_is_read_in_a_step_and_ticks_come_between() {
    let mut harness = Harness::new();
    let _client = harness.start_call(call_config(1), &[], "");
    harness.run_for(100 * MS);
    let mut answers = Vec::new();
    for _ in 0..5 {
        let (reply, answer) = oneshot::channel();
        let offer = OfferRequest {
            conversation: ConversationId(9),
            sdp: String::new(),
            replaces: None,
            restart: false,
            new_call: None,
            pending_offer: None,
            reply,
        };
        assert!(harness.inbox.requests.send(Message::Offer(Box::new(offer))).is_ok());
        answers.push(answer);
    }
    let mut next_request = send_request(&harness);
    for n in 0..6 {
        let ticks = harness.stats.ticks.load(Relaxed);
        harness.now += 10 * MS;
        harness.media_thread.step(harness.now);
        let answered = answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
        assert_eq!(
            (answered, next_request.try_recv().is_ok()),
            if n < 5 { (1, false) } else { (0, true) }
        );
        assert_eq!(harness.stats.ticks.load(Relaxed) - ticks, 1);
    }
}

#[test]
fn a_client_that_connects_is_answered_in_the_step_of_a_tick_too() {
    let mut harness = Harness::with_socket(loopback_socket());
    let _other = harness.start_call(call_config(2), &[], "");
    let mut client = Client::offer(&mut harness, call_config(1));
    harness.run_for(100 * MS);
    let mut buffer = [0; 2_000];
    for _ in 0..100 {
        let sent = client.exchange(harness.now);
        let ticks = harness.stats.ticks.load(Relaxed);
        harness.now += 10 * MS;
        harness.media_thread.step(harness.now);
        assert_eq!(harness.stats.ticks.load(Relaxed) - ticks, 1);
        if sent > 0 {
            assert!(client.socket.recv_from(&mut buffer).is_ok(), "the check is not answered");
            return;
        }
    }
    panic!("the client sends no check");
}
