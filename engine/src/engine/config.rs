//! How the engine runs.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::transport::socket;

/// How the engine runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Media threads; 0 = one per core.
    pub threads: usize,
    /// Calls held at once at most, by all threads together; 0 = no limit but the decoders'.
    pub max_calls: usize,
    /// This host's addresses that clients may use; see [`socket::host_addresses`].
    pub host_addresses: Vec<IpAddr>,
    /// Addresses under which a NAT in front of us is known.
    pub public_addresses: Vec<IpAddr>,
    /// UDP ports to choose from, one per thread; any free ones without.
    pub udp_ports: Option<RangeInclusive<u16>>,
    /// Port of ICE-TCP, for networks without UDP; 0 = any.
    pub tcp_port: Option<u16>,
    /// When a user is gone.
    pub timeouts: Timeouts,
    /// Folder of traces; without it no call is traced.
    pub trace_dir: Option<PathBuf>,
    /// Share of a media thread's time, and of the process's processors, above which it takes no new call; 0 = it always does. See
    /// [`crate::load`].
    pub max_load: f64,
    /// Bytes of memory that must be left for a new call; 0 = whatever is.
    pub min_free_memory: u64,
    /// Questions a second that a client may type, and five times as many at once; 0 = no limit.
    pub max_questions_per_second: f64,
}

/// Times that decide that nobody is there.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// An offer connects within this time or is dropped.
    pub offer: Duration,
    /// A connection closed without a word may come back within this time.
    pub closed: Duration,
    /// A client of which nothing is heard may come back within this time.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            offer: Duration::from_secs(15),
            closed: Duration::from_secs(5),
            silence: Duration::from_secs(25),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 0,
            max_calls: 0,
            host_addresses: socket::host_addresses(true),
            public_addresses: Vec::new(),
            udp_ports: None,
            tcp_port: None,
            timeouts: Timeouts::default(),
            trace_dir: None,
            max_load: 0.0,
            min_free_memory: 0,
            max_questions_per_second: 0.0,
        }
    }
}
