//! Servers on loopback. Tests that depend on time use a clock that they advance.

use std::net;

use super::*;

fn stun_check(user: &str) -> Vec<u8> {
    let mut datagram =
        vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    datagram.extend([0, 6, 0, user.len() as u8]);
    datagram.extend(user.bytes());
    datagram.resize(datagram.len().next_multiple_of(4), 0);
    datagram
}

fn frame_bytes(contents: &[u8]) -> Vec<u8> {
    [&(contents.len() as u16).to_be_bytes()[..], contents].concat()
}

#[test]
#[allow(clippy::disallowed_methods)] // the test needs its result
fn datagrams_go_both_ways_and_strangers_are_turned_away() {
    let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
    let address = server.candidates()[0].address;
    let datagram_sender = server.datagram_sender();
    let back = datagram_sender.clone();
    let thread = std::thread::spawn(move || {
        let mut got = Vec::new();
        server
            .run(crate::clock::now, |ufrag, datagram| {
                if ufrag != "friend" {
                    return false;
                }
                back.send(datagram.source, datagram.contents.iter().rev().copied().collect());
                got.push(datagram);
                true
            })
            .unwrap();
        got
    });
    let mut friend = net::TcpStream::connect(address).unwrap();
    let first = stun_check("friend:me");
    // Two frames in one TCP segment, the second one split in two.
    let second = vec![7; 300];
    let bytes = [frame_bytes(&first), frame_bytes(&second)].concat();
    friend.write_all(&bytes[..first.len() + 50]).unwrap();
    friend.write_all(&bytes[first.len() + 50..]).unwrap();
    let mut answer = vec![0; bytes.len()];
    friend.read_exact(&mut answer).unwrap();
    let turned: Vec<u8> = first.iter().rev().copied().collect();
    assert_eq!(answer, [frame_bytes(&turned), frame_bytes(&second)].concat());

    for rude in
        [frame_bytes(&stun_check("nobody:x")), frame_bytes(b"GET / HTTP/1.1"), vec![0xff; 4000]]
    {
        let mut stranger = net::TcpStream::connect(address).unwrap();
        stranger.write_all(&rude).unwrap();
        let end = stranger.read(&mut [0; 10]);
        assert!(end.is_err() || end.is_ok_and(|length| length == 0));
    }
    datagram_sender.stop();
    let got = thread.join().unwrap();
    assert_eq!(got.len(), 2);
    assert_eq!(
        got[1],
        Datagram { source: friend.local_addr().unwrap(), destination: address, contents: second }
    );
}

/// Waits whether the server closes the connection.
fn is_closed(stream: &mut net::TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    match stream.read(&mut [0; 10]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

fn is_open(stream: &mut net::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 10]);
    stream.set_nonblocking(false).unwrap();
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// A server that echoes every datagram, on a clock that the test advances.
struct EchoServer {
    address: SocketAddr,
    datagram_sender: DatagramSender,
    /// Offset of the clock.
    clock_offset: std::sync::Arc<std::sync::Mutex<Duration>>,
    thread: std::thread::JoinHandle<io::Result<()>>,
}

impl EchoServer {
    #[allow(clippy::disallowed_methods)] // the test needs its result
    fn start(limits: PendingLimits) -> Self {
        let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        server.limits = limits;
        let (address, datagram_sender) = (server.candidates()[0].address, server.datagram_sender());
        let back = datagram_sender.clone();
        let start = crate::clock::now();
        let clock_offset = std::sync::Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let clock = std::sync::Arc::clone(&clock_offset);
        let thread = std::thread::spawn(move || {
            let now = || start + *clock.lock().unwrap();
            server.run(now, |_, datagram| {
                back.send(datagram.source, datagram.contents);
                true
            })
        });
        Self { address, datagram_sender, clock_offset, thread }
    }

    fn open(&self) -> net::TcpStream {
        net::TcpStream::connect(self.address).unwrap()
    }

    fn advance_clock(&self, time: Duration) {
        *self.clock_offset.lock().unwrap() += time;
    }

    fn stop(self) {
        self.datagram_sender.stop();
        self.thread.join().unwrap().unwrap();
    }
}

/// Sends a check and receives its echo, twice. After that the server has read its clock, and has
/// accepted all earlier connections.
fn exchange_checks(friend: &mut net::TcpStream) {
    for _ in 0..2 {
        friend.write_all(&frame_bytes(&stun_check("friend:me"))).unwrap();
        friend.read_exact(&mut vec![0; frame_bytes(&stun_check("friend:me")).len()]).unwrap();
    }
}

#[test]
fn silence_and_half_a_check_are_closed_in_time_and_keep_nobody_out() {
    let server = EchoServer::start(PendingLimits {
        max_pending: 4,
        max_pending_per_address: 4,
        ..PENDING_LIMITS
    });
    let mut friend = server.open();
    exchange_checks(&mut friend);
    let mut silent: Vec<_> = (0..12).map(|_| server.open()).collect();
    assert!(silent[..8].iter_mut().all(is_closed), "the oldest are replaced by newer ones");
    // A client that sends is still accepted.
    let mut another = server.open();
    exchange_checks(&mut another);
    let mut halting = server.open();
    halting.write_all(&frame_bytes(&stun_check("friend:me"))[..20]).unwrap();
    exchange_checks(&mut friend);
    server.advance_clock(PENDING_LIMITS.first_check_timeout + Duration::from_secs(1));
    exchange_checks(&mut friend);
    assert!(silent[8..].iter_mut().all(is_closed), "nothing came in time");
    assert!(is_closed(&mut halting), "no whole check came in time");
    assert!(
        is_open(&mut friend) && is_open(&mut another),
        "a client that has sent a check may be silent for longer"
    );
    server.stop();
}

#[test]
fn the_first_check_is_waited_for_for_five_seconds() {
    let server = EchoServer::start(PENDING_LIMITS);
    let (mut silent, mut friend) = (server.open(), server.open());
    exchange_checks(&mut friend);
    // The server sweeps four times per timeout. A late connection is closed by the fifth sweep.
    let mut quarter = || {
        server.advance_clock(Duration::from_millis(1_250));
        exchange_checks(&mut friend);
    };
    for n in 1..=4 {
        quarter();
        assert!(is_open(&mut silent), "after {n} quarters");
    }
    quarter();
    assert!(is_closed(&mut silent), "no check came in time");
    server.stop();
}

/// A server whose rounds the test runs itself. Its clock stands still.
struct SteppedServer {
    server: Server,
    events: Events,
    now: Instant,
}

impl SteppedServer {
    fn new() -> Self {
        let server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        Self { server, events: Events::with_capacity(256), now: crate::clock::now() }
    }

    fn open(&self) -> net::TcpStream {
        net::TcpStream::connect(self.server.candidates()[0].address).unwrap()
    }

    /// The sources of the datagrams that one round delivers.
    fn run_round(&mut self) -> Vec<SocketAddr> {
        let (now, mut sources) = (self.now, Vec::new());
        let mut deliver = |_: &str, datagram: Datagram| {
            sources.push(datagram.source);
            true
        };
        assert!(self.server.run_round(&mut self.events, &|| now, &mut deliver).unwrap());
        sources
    }
}

#[test]
fn a_client_that_floods_takes_turns_with_the_others_and_is_held_to_its_rate() {
    let mut server = SteppedServer::new();
    let (mut flood, mut friend) = (server.open(), server.open());
    flood
        .write_all(
            &[frame_bytes(&stun_check("flood:me")), frame_bytes(&[7]).repeat(10_000)].concat(),
        )
        .unwrap();
    friend
        .write_all(&[frame_bytes(&stun_check("friend:me")), frame_bytes(&[7; 300])].concat())
        .unwrap();
    let (flood_source, friend_source) = (flood.local_addr().unwrap(), friend.local_addr().unwrap());
    let (mut of_flood, mut of_friend) = (0, 0);
    let mut run_round = |server: &mut SteppedServer| {
        let sources = server.run_round();
        let count = |wanted| sources.iter().filter(|source| **source == wanted).count();
        assert!(count(flood_source) <= MAX_FRAMES_PER_TURN, "more than one turn in a round");
        of_flood += count(flood_source);
        of_friend += count(friend_source);
        (of_flood, of_friend)
    };
    while run_round(&mut server).1 < 2 {}
    let (before, _) = run_round(&mut server);
    assert!(before < 1_000, "the other client waited for {before} frames");
    // What the media threads send leaves in the same round, though the flood has not been read.
    server.server.datagram_sender().send(friend_source, vec![9; 10]);
    run_round(&mut server);
    let mut answer = [0; 12];
    friend.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], frame_bytes(&[9; 10]));
    // The clock stands still, so only the burst is admitted.
    let (mut last, _) = run_round(&mut server);
    for _ in 0..40 {
        (last, _) = run_round(&mut server);
    }
    assert_eq!(last, MAX_DATAGRAM_BURST as usize);
    server.now += Duration::from_secs(1);
    for _ in 0..40 {
        (last, _) = run_round(&mut server);
    }
    assert_eq!(last, (MAX_DATAGRAM_BURST + MAX_DATAGRAMS_PER_SECOND) as usize, "nothing is lost");
}

#[test]
fn connections_are_accepted_in_rounds() {
    let mut server = SteppedServer::new();
    server.server.limits =
        PendingLimits { max_pending: 1_000, max_pending_per_address: 1_000, ..PENDING_LIMITS };
    let _opened: Vec<_> = (0..MAX_ACCEPTED_PER_ROUND + 10).map(|_| server.open()).collect();
    server.run_round();
    assert_eq!(server.server.connections.len(), MAX_ACCEPTED_PER_ROUND);
    server.run_round();
    assert_eq!(server.server.connections.len(), MAX_ACCEPTED_PER_ROUND + 10);
}
