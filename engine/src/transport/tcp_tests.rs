//! Servers on loopback, with a clock that the test moves where time matters.

use std::net;

use super::*;

fn check(user: &str) -> Vec<u8> {
    let mut datagram = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    datagram.extend([0, 6, 0, user.len() as u8]);
    datagram.extend(user.bytes());
    datagram.resize(datagram.len().next_multiple_of(4), 0);
    datagram
}

fn framed(contents: &[u8]) -> Vec<u8> {
    [&(contents.len() as u16).to_be_bytes()[..], contents].concat()
}

#[test]
#[allow(clippy::disallowed_methods)] // its result is wanted back
fn datagrams_go_both_ways_and_strangers_are_turned_away() {
    let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
    let address = server.candidates()[0].address;
    let outlet = server.outlet();
    let back = outlet.clone();
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
    let first = check("friend:me");
    // Two frames in one segment, the second cut in two.
    let second = vec![7; 300];
    let bytes = [framed(&first), framed(&second)].concat();
    friend.write_all(&bytes[..first.len() + 50]).unwrap();
    friend.write_all(&bytes[first.len() + 50..]).unwrap();
    let mut answer = vec![0; bytes.len()];
    friend.read_exact(&mut answer).unwrap();
    let turned: Vec<u8> = first.iter().rev().copied().collect();
    assert_eq!(answer, [framed(&turned), framed(&second)].concat());

    for rude in [framed(&check("nobody:x")), framed(b"GET / HTTP/1.1"), vec![0xff; 4000]] {
        let mut stranger = net::TcpStream::connect(address).unwrap();
        stranger.write_all(&rude).unwrap();
        let end = stranger.read(&mut [0; 10]);
        assert!(end.is_err() || end.is_ok_and(|length| length == 0));
    }
    outlet.stop();
    let got = thread.join().unwrap();
    assert_eq!(got.len(), 2);
    assert_eq!(
        got[1],
        Datagram { source: friend.local_addr().unwrap(), destination: address, contents: second }
    );
}

/// Whether the server closes a connection, waited for.
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

/// A server that sends every datagram back, on a clock that the test moves.
struct Echo {
    address: SocketAddr,
    outlet: Outlet,
    /// How much the clock has moved.
    passed: std::sync::Arc<std::sync::Mutex<Duration>>,
    thread: std::thread::JoinHandle<io::Result<()>>,
}

impl Echo {
    #[allow(clippy::disallowed_methods)] // its result is wanted back
    fn start(limits: Limits) -> Self {
        let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        server.limits = limits;
        let (address, outlet) = (server.candidates()[0].address, server.outlet());
        let back = outlet.clone();
        let start = crate::clock::now();
        let passed = std::sync::Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let clock = std::sync::Arc::clone(&passed);
        let thread = std::thread::spawn(move || {
            let now = || start + *clock.lock().unwrap();
            server.run(now, |_, datagram| {
                back.send(datagram.source, datagram.contents);
                true
            })
        });
        Self { address, outlet, passed, thread }
    }

    fn open(&self) -> net::TcpStream {
        net::TcpStream::connect(self.address).unwrap()
    }

    fn pass(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }

    fn stop(self) {
        self.outlet.stop();
        self.thread.join().unwrap().unwrap();
    }
}

/// Sends a check and has it back, twice: then the server has looked at its clock, and has accepted whoever connected before.
fn talk(friend: &mut net::TcpStream) {
    for _ in 0..2 {
        friend.write_all(&framed(&check("friend:me"))).unwrap();
        friend.read_exact(&mut vec![0; framed(&check("friend:me")).len()]).unwrap();
    }
}

#[test]
fn silence_and_half_a_check_are_closed_in_time_and_keep_nobody_out() {
    let server = Echo::start(Limits { strangers: 4, per_address: 4, ..LIMITS });
    let mut friend = server.open();
    talk(&mut friend);
    let mut silent: Vec<_> = (0..12).map(|_| server.open()).collect();
    assert!(silent[..8].iter_mut().all(is_closed), "the oldest make room for the newer");
    // Who talks comes in all the same.
    let mut another = server.open();
    talk(&mut another);
    let mut halting = server.open();
    halting.write_all(&framed(&check("friend:me"))[..20]).unwrap();
    talk(&mut friend);
    server.pass(LIMITS.first_check + Duration::from_secs(1));
    talk(&mut friend);
    assert!(silent[8..].iter_mut().all(is_closed), "nothing came in time");
    assert!(is_closed(&mut halting), "no whole check came in time");
    assert!(is_open(&mut friend) && is_open(&mut another), "who has sent a check may be silent for longer");
    server.stop();
}

#[test]
fn the_first_check_is_waited_for_for_five_seconds() {
    let server = Echo::start(LIMITS);
    let (mut silent, mut friend) = (server.open(), server.open());
    talk(&mut friend);
    // It closes what is late four times in that time, and once more.
    let mut quarter = || {
        server.pass(Duration::from_millis(1_250));
        talk(&mut friend);
    };
    for n in 1..=4 {
        quarter();
        assert!(is_open(&mut silent), "after {n} quarters");
    }
    quarter();
    assert!(is_closed(&mut silent), "no check came in time");
    server.stop();
}
