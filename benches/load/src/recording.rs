//! `--record`: the cost of recordings, by the server's own counters.
//!
//! The server measures itself, because no difference of two runs is as precise: an estimate by
//! samples for the media threads (`engine::recorder::cost`), the CPU clock of the thread that writes
//! to the disk, and the CPU clock of each child process, which contains its start.

use clap::ValueEnum;
use serde::Serialize;

use crate::metrics::{RecordingMetrics, ServerMetrics};
use crate::stats::round_to;

/// The channels of the recordings' sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecordedChannels {
    /// Both voices in one channel
    Mixed,
    /// The user left, the agent right
    Split,
}

impl RecordedChannels {
    /// The value of `config.recording.channels`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Split => "split",
        }
    }
}

/// Cost of the recordings on the server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RecordingStats {
    /// CPU time of the media threads for recordings, per second of a call, in ms.
    pub(crate) media_ms_per_call_second: Option<f64>,
    /// CPU time of the thread that writes to the disk, per second of a call, in ms.
    pub(crate) disk_ms_per_call_second: Option<f64>,
    /// The sum of both: what a recording costs during its call.
    pub(crate) call_ms_per_call_second: Option<f64>,
    /// CPU time of the child processes after the calls, per second of a recording, in ms.
    pub(crate) delivery_ms_per_call_second: Option<f64>,
    /// Bytes written during the calls, per second of a call.
    pub(crate) bytes_per_call_second: Option<f64>,
    /// Packets that are in no file.
    pub(crate) dropped_packets: Option<u64>,
    /// Recordings that ended before their call.
    pub(crate) failed: Option<u64>,
    /// Recordings delivered after their calls.
    pub(crate) delivered: Option<u64>,
}

/// The server's counters at four times.
pub(crate) struct Readings<'a> {
    /// Before the first call.
    pub(crate) before: &'a ServerMetrics,
    /// Between these two, all calls run.
    pub(crate) start: &'a ServerMetrics,
    pub(crate) end: &'a ServerMetrics,
    /// After the last delivery.
    pub(crate) after: &'a ServerMetrics,
}

impl RecordingStats {
    /// `call_seconds`: sum of the calls' durations between `start` and `end`, in s.
    pub(crate) fn new(readings: &Readings<'_>, call_seconds: f64) -> Self {
        let during = growth(readings.start, readings.end);
        let whole = growth(readings.before, readings.after);
        let per_second = |value: Option<f64>, seconds: Option<f64>, factor: f64, digits| {
            let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
            Some(round_to(value? * factor / seconds, digits))
        };
        let per_call = |value: Option<f64>| per_second(value, Some(call_seconds), 1e3, 4);
        let sum = during.media_cpu_seconds.zip(during.disk_cpu_seconds).map(|(a, b)| a + b);
        let count = |value: Option<f64>| value.map(|n| n as u64);
        Self {
            media_ms_per_call_second: per_call(during.media_cpu_seconds),
            disk_ms_per_call_second: per_call(during.disk_cpu_seconds),
            call_ms_per_call_second: per_call(sum),
            delivery_ms_per_call_second: per_second(
                whole.delivery_cpu_seconds,
                whole.delivered_seconds,
                1e3,
                3,
            ),
            bytes_per_call_second: per_second(during.bytes, Some(call_seconds), 1.0, 0),
            dropped_packets: count(whole.dropped_packets),
            failed: count(whole.failed),
            delivered: count(whole.delivered),
        }
    }

    /// The values of the lines in the table, by their names.
    pub(crate) fn lines(&self) -> [(&'static str, String); 2] {
        let ms = |value: Option<f64>| value.map_or("?".to_owned(), |ms| format!("{ms} ms"));
        let count = |value: Option<u64>| value.map_or("?".to_owned(), |n| n.to_string());
        let cost = format!(
            "media threads {}, disk thread {}, child process afterwards {}",
            ms(self.media_ms_per_call_second),
            ms(self.disk_ms_per_call_second),
            ms(self.delivery_ms_per_call_second)
        );
        let bytes = self.bytes_per_call_second.map_or("?".to_owned(), |bytes| bytes.to_string());
        let files = format!(
            "{bytes} bytes per call-second, {} packets dropped; {} delivered, {} failed",
            count(self.dropped_packets),
            count(self.delivered),
            count(self.failed)
        );
        [("recording CPU", cost), ("recordings", files)]
    }
}

/// Growth of the counters; nothing is known if the server does not have them, or was restarted.
pub(crate) fn growth(from: &ServerMetrics, to: &ServerMetrics) -> RecordingMetrics {
    if from.start_time != to.start_time {
        return RecordingMetrics::default();
    }
    to.recording.since(&from.recording)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading `seconds` after the start of the calls.
    fn reading(seconds: f64, delivered: f64) -> ServerMetrics {
        let recording = RecordingMetrics {
            media_cpu_seconds: Some(seconds * 0.001),
            disk_cpu_seconds: Some(1.0 + seconds * 0.002),
            bytes: Some(seconds * 60_000.0),
            dropped_packets: Some(7.0),
            failed: Some(0.0),
            delivered: Some(delivered),
            delivered_seconds: Some(delivered * 12.0),
            delivery_cpu_seconds: Some(delivered * 0.06),
        };
        ServerMetrics { start_time: Some(5.0), recording, ..ServerMetrics::default() }
    }

    #[test]
    fn costs_are_divided_by_the_time_in_which_they_arose() {
        // Ten calls of 20 s, of which 10 s are measured.
        let (before, start, end) = (reading(0.0, 3.0), reading(5.0, 3.0), reading(15.0, 3.0));
        let after = reading(20.0, 13.0);
        let readings = Readings { before: &before, start: &start, end: &end, after: &after };
        let stats = RecordingStats::new(&readings, 100.0);
        assert_eq!(stats.media_ms_per_call_second, Some(0.1));
        assert_eq!(stats.disk_ms_per_call_second, Some(0.2));
        assert_eq!(stats.call_ms_per_call_second, Some(0.3));
        assert_eq!(stats.delivery_ms_per_call_second, Some(5.0));
        assert_eq!(stats.bytes_per_call_second, Some(6_000.0));
        assert_eq!((stats.dropped_packets, stats.failed), (Some(0), Some(0)));
        assert_eq!(stats.delivered, Some(10));
        let [(_, cost), (_, files)] = stats.lines();
        assert!(cost.contains("media threads 0.1 ms, disk thread 0.2 ms"), "{cost}");
        assert!(files.contains("6000 bytes per call-second, 0 packets dropped"), "{files}");
    }

    #[test]
    fn a_server_without_the_counters_has_no_cost() {
        let (none, restarted) = (ServerMetrics::default(), reading(9.0, 1.0));
        let before = ServerMetrics { start_time: Some(4.0), ..restarted };
        for (before, after) in [(&none, &none), (&before, &restarted)] {
            let readings = Readings { before, start: before, end: after, after };
            let stats = RecordingStats::new(&readings, 10.0);
            assert_eq!((stats.media_ms_per_call_second, stats.delivered), (None, None));
            assert!(stats.lines()[0].1.contains("media threads ?"));
        }
    }

    #[test]
    fn without_a_delivery_there_is_no_cost_of_one() {
        let reading = reading(5.0, 3.0);
        let readings =
            Readings { before: &reading, start: &reading, end: &reading, after: &reading };
        let stats = RecordingStats::new(&readings, 0.0);
        assert_eq!((stats.delivery_ms_per_call_second, stats.delivered), (None, Some(0)));
        assert_eq!(stats.media_ms_per_call_second, None);
    }
}
