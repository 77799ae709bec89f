//! A busy machine delivers bytes on the loopback device later than they are sent. A byte that is
//! sent afterwards arrives after them.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use tokio::task::yield_now;

/// A connection of this thread to itself.
struct Probe {
    near: TcpStream,
    far: TcpStream,
    sent: u64,
    received: u64,
}

impl Probe {
    fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nonblocking(true).unwrap();
        Self { near, far, sent: 0, received: 0 }
    }

    /// Sends a byte and returns its number.
    fn send(&mut self) -> u64 {
        self.near.write_all(&[0]).unwrap();
        self.sent += 1;
        self.sent
    }

    fn has_received(&mut self, number: u64) -> bool {
        match self.far.read(&mut [0; 64]) {
            Ok(count) => self.received += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        self.received >= number
    }
}

thread_local! {
    static PROBE: RefCell<Probe> = RefCell::new(Probe::open());
}

/// Waits until a byte that is sent now has arrived.
pub(super) async fn pass() {
    let number = PROBE.with_borrow_mut(Probe::send);
    while !PROBE.with_borrow_mut(|probe| probe.has_received(number)) {
        yield_now().await;
    }
}
