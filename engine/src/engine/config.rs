//! Configuration of the engine.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::context::Timeouts;
use crate::recorder::RecorderConfig;
use crate::transport::socket;

/// Configuration of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of media threads; 0 = one per core.
    pub threads: usize,
    /// Maximum number of calls on all threads together; 0 = no limit except the decoders'.
    pub max_calls: usize,
    /// This host's addresses that clients may use; see [`socket::host_addresses`].
    pub host_addresses: Vec<IpAddr>,
    /// Whether all clients are on this machine: media sockets accept nothing from other machines.
    /// Rooms of LiveKit use [`Config::host_addresses`] in any case.
    pub loopback_only: bool,
    /// Addresses under which a NAT in front of this host is reachable.
    pub public_addresses: Vec<IpAddr>,
    /// UDP ports to choose from, one per thread; without a range, any free port.
    pub udp_ports: Option<RangeInclusive<u16>>,
    /// Port of ICE-TCP, for networks without UDP; 0 = any.
    pub tcp_port: Option<u16>,
    /// When a user counts as gone.
    pub timeouts: Timeouts,
    /// Folder of traces; without it no call is traced.
    pub trace_dir: Option<PathBuf>,
    /// How calls are recorded; without it no call is recorded.
    pub recorder: Option<RecorderConfig>,
    /// Share of a media thread's time, and of the process's processors, above which the thread
    /// takes no new call; 0 = no limit. See [`crate::cpu_load`].
    pub max_load: f64,
    /// Bytes of memory that must be free for a new call; 0 = no limit.
    pub min_free_memory: u64,
    /// Questions per second that a client may type, with a burst of five times as many; 0 = no
    /// limit.
    pub max_questions_per_second: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 0,
            max_calls: 0,
            host_addresses: socket::host_addresses(true),
            loopback_only: false,
            public_addresses: Vec::new(),
            udp_ports: None,
            tcp_port: None,
            timeouts: Timeouts::default(),
            trace_dir: None,
            recorder: None,
            max_load: 0.0,
            min_free_memory: 0,
            max_questions_per_second: 0.0,
        }
    }
}
