//! Metrics of this process from the operating system, under the names that all Prometheus clients
//! use.

use cpu_time::ProcessTime;
use engine_api::metrics::MetricFamily;

/// Reads the values. Blocks briefly; longer with more open files. Values that cannot be read are
/// omitted.
pub(super) fn collect() -> Vec<MetricFamily> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name| {
        Some(status_field(&status, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    let cpu = ProcessTime::try_now().ok().map(|time| time.as_duration().as_secs_f64());
    let cores = std::thread::available_parallelism().ok().map(usize::from);
    let numbers = [
        cpu.map(|n| {
            MetricFamily::counter(
                "process_cpu_seconds",
                "CPU time of the process, in user and system mode.",
            )
            .with_value(n)
        }),
        bytes("VmRSS").map(|n| {
            MetricFamily::gauge("process_resident_memory_bytes", "Resident memory.").with_value(n)
        }),
        bytes("VmSize").map(|n| {
            MetricFamily::gauge("process_virtual_memory_bytes", "Virtual memory.").with_value(n)
        }),
        open_files().map(|n| {
            MetricFamily::gauge("process_open_fds", "Open files, including sockets.").with_value(n)
        }),
        max_open_files().map(|n| {
            MetricFamily::gauge("process_max_fds", "Maximum number of open files.").with_value(n)
        }),
        status_field(&status, "Threads").and_then(|n| n.parse::<u64>().ok()).map(|n| {
            MetricFamily::gauge("process_threads", "Threads of the process.").with_value(n)
        }),
        start_time_seconds().map(|n| {
            MetricFamily::gauge(
                "process_start_time_seconds",
                "Start time of the process, in seconds since the Unix epoch.",
            )
            .with_value(n)
        }),
        cores.map(|n| {
            MetricFamily::gauge("visavis_cores", "Cores that the process may use.").with_value(n)
        }),
    ];
    numbers.into_iter().flatten().collect()
}

/// A field of `/proc/self/status`.
fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn open_files() -> Option<u64> {
    // The handle that reads the folder does not count.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

fn max_open_files() -> Option<u64> {
    rlimit::Resource::NOFILE.get_soft().ok()
}

/// Start time in seconds since the Unix epoch. The 22nd field of `/proc/self/stat` counts from the
/// system's start, in hundredths of a second (`USER_HZ` is 100 on every supported Linux).
/// `/proc/stat` holds the system's start.
fn start_time_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, in parentheses, may contain any characters.
    let after = stat.rsplit_once(") ")?.1;
    let ticks: f64 = after.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 =
        system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use engine_api::metrics::MetricValue;

    use super::*;

    fn metric_value(families: &[MetricFamily], name: &str) -> f64 {
        let family =
            families.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no {name}"));
        match &family.points[0].value {
            MetricValue::Count(n) => *n as f64,
            MetricValue::Float(n) => *n,
            other @ MetricValue::Histogram { .. } => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn the_process_metrics_describe_this_process() {
        let before = collect();
        let held: Vec<_> = (0..32).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let thread = std::thread::spawn(std::thread::park);
        let started = cpu_time::ThreadTime::now();
        let mut sum = 0u64;
        while started.elapsed().as_millis() < 50 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = collect();
        let grew = |name| metric_value(&after, name) - metric_value(&before, name);
        // Other tests run in parallel: they may close their files and end their threads.
        assert!(grew("process_open_fds") >= 8.0, "{}", grew("process_open_fds"));
        assert!(
            grew("process_resident_memory_bytes") > 32e6,
            "{}",
            grew("process_resident_memory_bytes")
        );
        assert!(grew("process_cpu_seconds") >= 0.01, "{}", grew("process_cpu_seconds"));
        assert!(metric_value(&after, "process_threads") >= 2.0);
        assert!(
            metric_value(&after, "process_max_fds") >= metric_value(&after, "process_open_fds")
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - metric_value(&after, "process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age} s old");
        drop((held, memory));
        thread.thread().unpark();
        thread.join().unwrap();
    }
}
