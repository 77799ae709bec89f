//! A server on loopback whose runs fail on demand. No test waits for a clock.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;

use super::*;
use crate::transport::tcp::DatagramSender;

/// A STUN check for the user "friend", as a frame of TCP.
fn check_frame() -> Vec<u8> {
    let user = b"friend:me";
    let mut datagram =
        vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    datagram.extend([0, 6, 0, user.len() as u8]);
    datagram.extend(user);
    datagram.resize(datagram.len().next_multiple_of(4), 0);
    [&(datagram.len() as u16).to_be_bytes()[..], &datagram].concat()
}

fn bind() -> Server {
    Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap()
}

fn echo(back: &DatagramSender) -> impl FnMut(&str, Datagram) -> bool + use<> {
    let back = back.clone();
    move |_, datagram| {
        back.send(datagram.source, datagram.contents);
        true
    }
}

#[test]
fn a_server_that_cannot_poll_or_panics_is_tried_until_it_serves() {
    let server = bind();
    let (address, datagrams) = (server.candidates()[0].address, server.datagram_sender());
    let failures = 20;
    let (mut runs, (delayed, delays)) = (0, channel());
    let (observed, back) = (datagrams.clone(), datagrams.clone());
    let thread = thread::spawn("ice-tcp", move || {
        let run = |server: &mut Server| {
            runs += 1;
            match runs {
                n if n > failures => server.run(clock::now, echo(&back)),
                n if n % 2 == 0 => panic!("the test's own panic"),
                _ => Err(io::Error::other("broken")),
            }
        };
        let wait = |delay| {
            delayed.send((delay, observed.health().message("threads of ICE-TCP"))).unwrap();
            Duration::ZERO
        };
        run_until_stopped(server, run, wait);
    })
    .unwrap();
    // It serves after all. The first round after a restart ends the failure.
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(&check_frame()).unwrap();
    let mut answer = vec![0; check_frame().len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, check_frame());
    client.write_all(&check_frame()).unwrap();
    client.read_exact(&mut answer).unwrap();
    assert!(datagrams.is_serving() && datagrams.health().reason().is_none());
    datagrams.stop();
    thread.join().unwrap();
    let waits: Vec<_> = delays.iter().collect();
    assert_eq!(waits.len(), failures);
    let message = |reason: &str| {
        Some(format!("threads of ICE-TCP that have failed and are restarting: 1 of 1 ({reason})"))
    };
    assert_eq!(waits[0].1, message("it cannot poll: broken"));
    assert_eq!(waits[1].1, message("it panicked"));
    assert!(waits.iter().all(|(_, message)| message.is_some()));
}

#[test]
fn a_server_that_waits_discards_what_cannot_be_sent_and_obeys_a_stop() {
    let server = bind();
    let datagrams = server.datagram_sender();
    // More than the queue holds: the rest is dropped, and the stop still finds room.
    for _ in 0..10_000 {
        datagrams.send(([127, 0, 0, 1], 9).into(), vec![1]);
    }
    let stopper = datagrams.clone();
    let thread = thread::spawn("stopper", move || stopper.stop()).unwrap();
    assert!(!server.discard_outgoing(clock::now, Duration::from_secs(3_600)), "stopped");
    thread.join().unwrap();
}
