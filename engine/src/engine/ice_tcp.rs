//! The thread of ICE-TCP. There is one, so it restarts after each panic and each error of polling.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use models::panic_isolation::run_until_done;

use super::CallDirectory;
use crate::media_thread::Inbox;
use crate::transport::tcp::{Datagram, Server};
use crate::{clock, thread};

/// Starts the thread. It passes each datagram to the inbox of its call's media thread.
///
/// # Errors
/// The system cannot start another thread.
pub(super) fn start(
    server: Server,
    directory: &Arc<Mutex<CallDirectory>>,
    inboxes: Vec<Inbox>,
) -> io::Result<()> {
    let directory = Arc::clone(directory);
    thread::spawn("ice-tcp", move || {
        let deliver = |ufrag: &str, datagram: Datagram| {
            let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
            let place = directory.ufrags.get(ufrag).filter(|p| p.is_alive());
            let Some(inbox) = place.and_then(|p| inboxes.get(p.thread)) else { return false };
            // A full queue drops the datagram and counts it, as a full socket would; the connection
            // stays.
            drop(inbox.tcp.send(datagram));
            true
        };
        run_until_stopped(server, |server| server.run(clock::now, deliver), |delay| delay);
    })
    .map(drop)
}

/// Runs the server until it is stopped. It has failed from a failure until it serves again, see
/// [`DatagramSender::health`](crate::transport::tcp::DatagramSender::health). `wait` is how long
/// the thread waits instead of a delay.
fn run_until_stopped(
    server: Server,
    mut run: impl FnMut(&mut Server) -> io::Result<()>,
    wait: impl Fn(Duration) -> Duration,
) {
    let datagrams = server.datagram_sender();
    let server = RefCell::new(server);
    let work = || run(&mut server.borrow_mut()).map_err(|error| format!("it cannot poll: {error}"));
    let pause = |reason: &str, delay| {
        datagrams.health().set_failed(0, reason);
        server.borrow().discard_outgoing(clock::now, wait(delay))
    };
    run_until_done(clock::now, work, pause);
}

#[cfg(test)]
#[path = "ice_tcp_tests.rs"]
mod tests;
