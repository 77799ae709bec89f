//! This machine: CPU affinity, CPU time of threads, memory, CPU model, and the commit of the build.

use std::fs;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A CPU list, such as `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not a CPU list such as 0,2-3");
        let mut list = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |n: &str| n.trim().parse::<usize>().ok().filter(|n| *n < CpuSet::MAX_CPU);
            let (Some(from), Some(to)) = (number(from), number(to)) else { return Err(bad()) };
            if from > to {
                return Err(bad());
            }
            list.extend(from..=to);
        }
        list.sort_unstable();
        list.dedup();
        Ok(Self(list))
    }
}

impl CpuList {
    /// The CPUs that this thread may use now.
    #[must_use]
    pub(crate) fn allowed() -> Self {
        let set = sched_getaffinity(None).unwrap_or_default();
        Self((0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect())
    }

    /// The CPUs of `self` that are not in `other`.
    #[must_use]
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|n| !other.0.contains(n)).collect())
    }

    /// Pins this thread, and the threads that it starts from now on, to these CPUs.
    ///
    /// # Errors
    /// The machine has none of them.
    pub(crate) fn pin(&self) -> Result<(), String> {
        let mut set = CpuSet::new();
        for n in &self.0 {
            set.set(*n);
        }
        sched_setaffinity(None, &set)
            .map_err(|e| format!("cannot run on the CPUs {:?} of this machine: {e}", self.0))
    }
}

/// CPU time of threads since their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTimes(Vec<(u32, String, u64)>);

impl ThreadTimes {
    /// Reads the CPU time of all threads of this process.
    #[must_use]
    pub(crate) fn read() -> Self {
        let mut threads = Vec::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let text = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
            let id = entry.file_name().to_str().and_then(|id| id.parse().ok());
            let spent = text("schedstat").and_then(|s| s.split(' ').next()?.parse().ok());
            // A thread that ended in the meantime has no data.
            if let (Some(id), Some(name), Some(spent)) = (id, text("comm"), spent) {
                threads.push((id, name.trim_end().to_owned(), spent));
            }
        }
        Self(threads)
    }

    /// CPU time since `earlier` of each thread whose name starts with `prefix`, in s.
    #[must_use]
    pub(crate) fn cpu_seconds_since(&self, earlier: &Self, prefix: &str) -> Vec<f64> {
        let of = |(id, _, spent): &(u32, String, u64)| {
            let before = earlier.0.iter().find(|t| t.0 == *id).map_or(0, |t| t.2);
            spent.saturating_sub(before) as f64 / 1e9
        };
        self.0.iter().filter(|t| t.1.starts_with(prefix)).map(of).collect()
    }
}

/// Resident memory of this process, in bytes.
#[must_use]
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// The CPU model.
#[must_use]
pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name =
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim());
    name.to_owned()
}

/// The commit of this build; empty outside a checkout.
#[must_use]
pub(crate) fn build_commit() -> String {
    env!("VISAVIS_COMMIT").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read_strictly() {
        assert_eq!("1".parse(), Ok(CpuList(vec![1])));
        assert_eq!("3,0-1,1".parse(), Ok(CpuList(vec![0, 1, 3])));
        for bad in ["", "a", "1-", "2-1", "0,,1", "-1", "99999"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
        assert_eq!(CpuList(vec![0, 1, 2]).without(&CpuList(vec![1])), CpuList(vec![0, 2]));
    }

    #[test]
    fn the_cpu_time_of_a_thread_is_counted_for_that_thread() {
        let before = ThreadTimes::read();
        let (go, wait) = std::sync::mpsc::channel();
        let (done, finished) = std::sync::mpsc::channel();
        let thread = engine::thread::spawn("load-test", move || {
            let start = cpu_time::ThreadTime::now();
            let mut n = 0_u64;
            while start.elapsed().as_millis() < 30 {
                n = n.wrapping_mul(3).wrapping_add(1);
            }
            done.send(n).unwrap();
            wait.recv().unwrap();
        })
        .unwrap();
        finished.recv().unwrap();
        let spent = ThreadTimes::read().cpu_seconds_since(&before, "load-test");
        go.send(()).unwrap();
        thread.join().unwrap();
        assert!(spent.len() == 1 && spent[0] > 0.001 && spent[0] < 0.2, "{spent:?}");
    }

    #[test]
    fn the_machine_is_known() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert_ne!(cpu_model(), "");
        assert!(!CpuList::allowed().0.is_empty());
    }
}
