//! Sends unrelated datagrams at a constant rate to a media port of this machine, to test how a
//! server copes with them during calls.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use serde::Serialize;

use crate::Error;
use crate::machine::CpuList;

/// Size of a datagram in bytes, as of a small RTP packet.
const DATAGRAM_SIZE: usize = 60;
/// Content of the datagrams: neither STUN, DTLS, RTP nor TURN.
const FILL_BYTE: u8 = 0x55;
/// Maximum number of datagrams per system call.
const MAX_SEGMENTS: usize = 64;
/// Pause between two polls of the clock.
const SEND_INTERVAL: Duration = Duration::from_micros(500);
/// Datagrams that are overdue by more than this are skipped: sent all at once, they would be a
/// different load from the requested one.
const MAX_BACKLOG: Duration = Duration::from_millis(5);
/// Minimum share of the rate that counts as reached.
const MIN_RATE_SHARE: f64 = 0.97;
/// Maximum rate in datagrams per second, and maximum duration in seconds.
const MAX_RATE_AND_SECONDS: (u32, f64) = (2_000_000, 3_600.0);

/// The command line of `visavis-load flood`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// Media port of a server on this machine, e.g. 127.0.0.1:40000
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
    /// Datagrams per second
    #[arg(long, value_name = "N", default_value = "150000")]
    rate: u32,
    /// Seconds
    #[arg(long, value_name = "S", default_value = "6")]
    seconds: f64,
    /// CPUs for the sender, e.g. 0,2-3
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct FloodReport {
    /// Number of datagrams.
    datagrams: u64,
    /// Number of skipped datagrams: the sender did not get a CPU in time, or the system did not
    /// accept them.
    #[serde(rename = "left_out")]
    skipped: u64,
    /// Duration in seconds.
    seconds: f64,
    /// Datagrams per second.
    rate: f64,
}

/// Sends the datagrams and prints a report as JSON.
///
/// # Errors
/// Invalid arguments, or a rate that was not reached.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let usage = |why: String| Err(Error::Usage(why));
    if !args.to.ip().is_loopback() || !args.to.is_ipv4() || args.to.port() == 0 {
        return usage(format!(
            "--to {} is not a port of this machine, such as 127.0.0.1:40000",
            args.to
        ));
    }
    if !(1..=MAX_RATE_AND_SECONDS.0).contains(&args.rate) {
        return usage(format!("--rate must be between 1 and {}", MAX_RATE_AND_SECONDS.0));
    }
    if !(0.1..=MAX_RATE_AND_SECONDS.1).contains(&args.seconds) {
        return usage(format!("--seconds must be between 0.1 and {}", MAX_RATE_AND_SECONDS.1));
    }
    if let Some(cpus) = &args.cpu {
        cpus.parse::<CpuList>().and_then(|cpus| cpus.pin()).map_err(Error::Usage)?;
    }
    let sent = send_flood(args.to, args.rate, Duration::from_secs_f64(args.seconds))
        .map_err(|error| Error::Failed(format!("cannot send to {}: {error}", args.to)))?;
    println!("{}", serde_json::to_string(&sent).unwrap_or_default());
    if sent.rate < MIN_RATE_SHARE * f64::from(args.rate) {
        return Err(Error::Failed(format!(
            "the sender reached {:.0} of {} datagrams per second: this machine has too little CPU",
            sent.rate, args.rate
        )));
    }
    Ok(())
}

/// Sends at `rate` datagrams per second for `length`.
fn send_flood(to: SocketAddr, rate: u32, length: Duration) -> io::Result<FloodReport> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let contents = [FILL_BYTE; DATAGRAM_SIZE * MAX_SEGMENTS];
    let (mut datagrams, mut skipped) = (0_u64, 0_u64);
    let max_backlog = (f64::from(rate) * MAX_BACKLOG.as_secs_f64()).ceil() as u64;
    let started_at = Instant::now();
    loop {
        let passed = started_at.elapsed().min(length);
        let due = (passed.as_secs_f64() * f64::from(rate)) as u64;
        let mut due_count = due - datagrams - skipped;
        skipped += due_count.saturating_sub(max_backlog);
        due_count = due_count.min(max_backlog);
        while due_count > 0 {
            // Read each time: a failed call can show that the system supports only one segment.
            let max_segments = state.max_gso_segments().clamp(1, MAX_SEGMENTS);
            let count = max_segments.min(usize::try_from(due_count).unwrap_or(max_segments));
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: &contents[..count * DATAGRAM_SIZE],
                segment_size: Some(DATAGRAM_SIZE),
                src_ip: None,
            };
            match state.try_send(UdpSockRef::from(&socket), &transmit) {
                Ok(()) => datagrams += count as u64,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    skipped += count as u64;
                }
                Err(error) if max_segments > 1 && state.max_gso_segments() == 1 => {
                    // The system does not support several segments; from now on one is sent at a
                    // time.
                    drop(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            due_count -= count as u64;
        }
        if passed == length {
            let seconds = started_at.elapsed().as_secs_f64();
            return Ok(FloodReport {
                datagrams,
                skipped,
                seconds,
                rate: datagrams as f64 / seconds,
            });
        }
        thread::sleep(SEND_INTERVAL.min(length - passed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(to: &str, rate: u32, seconds: f64) -> Result<(), String> {
        let to = to.parse().unwrap();
        run(&Args { to, rate, seconds, cpu: None }).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flood_report_matches_the_received_packets() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent =
            send_flood(receiver.local_addr().unwrap(), 1_000, Duration::from_millis(200)).unwrap();
        assert_eq!(sent.datagrams + sent.skipped, 200);
        assert!(sent.datagrams > 0);
        receiver.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2 * DATAGRAM_SIZE];
        let received: Vec<usize> = std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).collect();
        assert_eq!(received, vec![DATAGRAM_SIZE; sent.datagrams as usize]);
    }

    #[test]
    fn the_flood_accepts_only_loopback_targets_and_sane_rates() {
        for to in ["192.0.2.1:40000", "[::1]:40000", "127.0.0.1:0"] {
            assert!(
                run_with(to, 10, 1.0).unwrap_err().contains("is not a port of this machine"),
                "{to}"
            );
        }
        assert!(run_with("127.0.0.1:1", 0, 1.0).unwrap_err().contains("--rate must be"));
        assert!(run_with("127.0.0.1:1", 10, 0.0).unwrap_err().contains("--seconds must be"));
    }
}
