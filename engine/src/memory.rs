//! Available memory: of the machine, or of the container in which the process runs.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a reading is valid.
const READING_MAX_AGE: Duration = Duration::from_secs(1);

/// Available memory, read at most once a second.
pub(crate) struct MemoryMonitor {
    /// Bytes that must be available for a new call; 0 = no limit.
    min_free: u64,
    last_reading: Mutex<Option<(Instant, u64)>>,
    read_available: fn() -> Option<u64>,
}

impl MemoryMonitor {
    pub(crate) fn new(min_free: u64) -> Self {
        Self { min_free, last_reading: Mutex::new(None), read_available: available }
    }

    /// Whether too little memory is available for a new call. Reads some small files, so media
    /// threads must not call it.
    pub(crate) fn is_low(&self, now: Instant) -> bool {
        if self.min_free == 0 {
            return false;
        }
        let mut last = self.last_reading.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, available)) if now.saturating_duration_since(*at) < READING_MAX_AGE => {
                *available < self.min_free
            }
            // If the value cannot be read, calls are not rejected.
            _ => {
                let available = (self.read_available)().unwrap_or(u64::MAX);
                *last = Some((now, available));
                available < self.min_free
            }
        }
    }
}

/// Available bytes; `None` if the system does not report them.
fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text));
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let group =
        || parse_cgroup(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?);
    machine.into_iter().chain(group()).min()
}

/// Reads available bytes from `/proc/meminfo`.
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Computes available bytes from the files of a control group; `None` if it has no limit. Inactive
/// file cache counts as available: the kernel reclaims it on demand.
fn parse_cgroup(max: &str, current: &str, stat: &str) -> Option<u64> {
    let (max, current): (u64, u64) = (max.trim().parse().ok()?, current.trim().parse().ok()?);
    let idle =
        stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
    Some(max.saturating_sub(current.saturating_sub(idle.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_smaller_of_machine_and_container_counts() {
        let machine = "MemTotal:       8000 kB\nMemFree:  10 kB\nMemAvailable:    4000 kB\n";
        assert_eq!(parse_meminfo(machine), Some(4_096_000));
        assert_eq!(parse_meminfo("MemTotal: 1 kB\n"), None);
        assert_eq!(
            parse_cgroup("1000000\n", "900000\n", "anon 5\ninactive_file 300000\n"),
            Some(400_000)
        );
        assert_eq!(parse_cgroup("max\n", "900000\n", ""), None, "no limit");
        assert_eq!(parse_cgroup("5\n", "900000\n", ""), Some(0), "over it");
        assert!(
            available().is_some_and(|left| left > 1 << 20),
            "of this machine: {:?}",
            available()
        );
    }

    #[test]
    fn a_memory_measurement_is_reused_for_a_second() {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        static LEFT: AtomicU64 = AtomicU64::new(50);
        let memory = MemoryMonitor {
            read_available: || Some(LEFT.load(Relaxed)),
            ..MemoryMonitor::new(100)
        };
        let now = clock::now();
        assert!(memory.is_low(now));
        LEFT.store(100, Relaxed);
        assert!(memory.is_low(now + READING_MAX_AGE / 2));
        assert!(!memory.is_low(now + READING_MAX_AGE));
        let without = MemoryMonitor { read_available: || Some(0), ..MemoryMonitor::new(0) };
        assert!(!without.is_low(now));
    }
}
