//! The server's metrics, read from `/metrics`.

/// One reading. A metric that the server does not expose is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ServerMetrics {
    /// CPU time of the process, in s.
    pub(crate) cpu_seconds: Option<f64>,
    /// Resident memory, in bytes.
    pub(crate) resident_bytes: Option<f64>,
    /// Number of audio frames sent.
    pub(crate) audio_frames: Option<f64>,
    /// Number of late audio frames.
    pub(crate) late_audio_frames: Option<f64>,
    /// Open files.
    pub(crate) open_files: Option<f64>,
    /// Threads.
    pub(crate) threads: Option<f64>,
    /// STT decoders in use.
    pub(crate) decoders_taken: Option<f64>,
    /// Running calls.
    pub(crate) calls: Option<f64>,
    /// Start time of the process.
    pub(crate) start_time: Option<f64>,
    /// Recordings.
    pub(crate) recording: RecordingMetrics,
}

/// Counters of recordings since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RecordingMetrics {
    /// CPU time of the media threads for recordings, in s.
    pub(crate) media_cpu_seconds: Option<f64>,
    /// CPU time of the thread that writes to the disk, in s.
    pub(crate) disk_cpu_seconds: Option<f64>,
    /// Bytes written during calls.
    pub(crate) bytes: Option<f64>,
    /// Packets that are in no file.
    pub(crate) dropped_packets: Option<f64>,
    /// Recordings that ended before their call.
    pub(crate) failed: Option<f64>,
    /// Recordings delivered after their calls.
    pub(crate) delivered: Option<f64>,
    /// Their duration, in s.
    pub(crate) delivered_seconds: Option<f64>,
    /// CPU time of the child processes that wrote them, in s.
    pub(crate) delivery_cpu_seconds: Option<f64>,
}

impl RecordingMetrics {
    fn parse(of: impl Fn(&str) -> Option<f64>) -> Self {
        Self {
            media_cpu_seconds: of("visavis_recorder_cpu_seconds_total{thread=\"media\"}"),
            disk_cpu_seconds: of("visavis_recorder_cpu_seconds_total{thread=\"disk\"}"),
            bytes: of("visavis_recorded_bytes_total"),
            dropped_packets: of("visavis_recording_packets_dropped_total"),
            failed: of("visavis_recordings_failed_total"),
            delivered: of("visavis_recordings_delivered_total"),
            delivered_seconds: of("visavis_recordings_delivered_seconds_total"),
            delivery_cpu_seconds: of("visavis_recording_delivery_cpu_seconds_total"),
        }
    }

    /// Growth of the counters since `earlier`.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let growth = |of: fn(&Self) -> Option<f64>| Some(of(self)? - of(earlier)?);
        Self {
            media_cpu_seconds: growth(|m| m.media_cpu_seconds),
            disk_cpu_seconds: growth(|m| m.disk_cpu_seconds),
            bytes: growth(|m| m.bytes),
            dropped_packets: growth(|m| m.dropped_packets),
            failed: growth(|m| m.failed),
            delivered: growth(|m| m.delivered),
            delivered_seconds: growth(|m| m.delivered_seconds),
            delivery_cpu_seconds: growth(|m| m.delivery_cpu_seconds),
        }
    }
}

impl ServerMetrics {
    /// Parses Prometheus text format.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Self {
        let of = |family: &str| sum_samples(text, family);
        Self {
            cpu_seconds: of("process_cpu_seconds_total"),
            resident_bytes: of("process_resident_memory_bytes"),
            audio_frames: of("visavis_audio_frames_total"),
            late_audio_frames: of("visavis_audio_frames_late_total"),
            open_files: of("process_open_fds"),
            threads: of("process_threads"),
            decoders_taken: of("visavis_stt_decoders{state=\"taken\"}"),
            calls: of("visavis_calls"),
            start_time: of("process_start_time_seconds"),
            recording: RecordingMetrics::parse(of),
        }
    }
}

/// Sum of all samples of a metric family, over all labels. `family` may also include its only
/// label.
fn sum_samples(text: &str, family: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(family)?;
        let value = match rest.strip_prefix('{') {
            // A label value may contain any character except an unescaped quote, so the last brace
            // is the closing one.
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix([' ', '\t'])?,
        };
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_summed_over_their_labels() {
        let text = "# HELP process_cpu_seconds_total x\n# TYPE process_cpu_seconds_total counter\n\
                    process_cpu_seconds_total 12.5\n\
                    visavis_audio_frames_total{thread=\"0\"} 10\n\
                    visavis_audio_frames_total{thread=\"} 1\"} 5 1700000000\n\
                    visavis_audio_frames_total_more 99\n\
                    visavis_recorder_cpu_seconds_total{thread=\"media\"} 0.25\n\
                    visavis_recorder_cpu_seconds_total{thread=\"disk\"} 0.5\n\
                    visavis_recordings_delivered_total 3\n\
                    visavis_recordings_delivered_seconds_total 36.5\n";
        let reading = ServerMetrics::parse(text);
        assert_eq!((reading.cpu_seconds, reading.audio_frames), (Some(12.5), Some(15.0)));
        assert_eq!((reading.late_audio_frames, reading.resident_bytes), (None, None));
        let recording = reading.recording;
        assert_eq!(recording.media_cpu_seconds.zip(recording.disk_cpu_seconds), Some((0.25, 0.5)));
        assert_eq!(recording.delivered.zip(recording.delivered_seconds), Some((3.0, 36.5)));
        assert_eq!(recording.since(&recording).delivered_seconds, Some(0.0));
        assert_eq!((recording.bytes, recording.since(&recording).bytes), (None, None));
        assert_eq!(ServerMetrics::parse("<html>"), ServerMetrics::default());
    }
}
