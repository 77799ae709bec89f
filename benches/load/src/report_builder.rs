//! Builds the report of a network run from its calls.

use crate::caller::FinishedCall;
use crate::machine;
use crate::metrics::ServerMetrics;
use crate::recording::{Readings, RecordingStats};
use crate::report::{CallerStats, Report, ServerStats, SoakStats, Video, WebhookStats};
use crate::stats::{Summary, round_to};
use crate::turns::TurnStats;

/// A call and the server's record of it.
pub(crate) struct EvaluatedCall {
    pub(crate) call: FinishedCall,
    pub(crate) turns: TurnStats,
    /// Number of events in the record, of missing webhooks, and of webhooks that arrived out of
    /// order; `None` without a receiver.
    pub(crate) events: Option<[usize; 3]>,
    /// Number of errors in the record.
    pub(crate) errors: Option<usize>,
}

/// Measurements other than the calls'.
#[derive(Default)]
pub(crate) struct RunMeasurements {
    /// Metrics with one call.
    pub(crate) with_one_call: ServerMetrics,
    /// Metrics at the start of the measurement.
    pub(crate) start: ServerMetrics,
    /// Metrics at its end.
    pub(crate) end: ServerMetrics,
    /// Its duration, in s.
    pub(crate) seconds: f64,
    /// Sum of the calls' durations within it, in s.
    pub(crate) call_seconds: f64,
    /// CPU time of this program within it, in s.
    pub(crate) generator_cpu_seconds: f64,
    /// Number of calls that could not start, or were disconnected.
    pub(crate) failed: usize,
    pub(crate) interrupted: bool,
    /// CPUs that this program is pinned to; empty = not pinned.
    pub(crate) cpus: Vec<usize>,
    pub(crate) soak: Option<SoakStats>,
    /// Metrics before the first call, and after the last delivery of a recording; `None` without
    /// recordings.
    pub(crate) recording: Option<(ServerMetrics, ServerMetrics)>,
}

/// Builds the report.
pub(crate) fn build_report(all: Vec<EvaluatedCall>, measured: RunMeasurements) -> Report {
    let mut report = Report {
        mode: "webrtc",
        failed: measured.failed,
        interrupted: measured.interrupted,
        ..Report::default()
    };
    let (mut join, mut ttff, mut v2v, mut overhead) = (vec![], vec![], vec![], vec![]);
    let (mut barge_in, mut duck) = (vec![], vec![]);
    let (mut speaking, mut pictures, mut worst, mut skew) = (0.0, 0, None::<f64>, None::<f64>);
    let (mut freezes, mut has_video) = (0, false);
    let mut events: Option<[usize; 3]> = None;
    for EvaluatedCall { call, turns, events: call_events, errors } in all {
        let scores = call.scores;
        report.calls += usize::from(call.stayed_connected);
        join.extend(call.join_seconds);
        ttff.extend(call.video.first_frame);
        v2v.extend(scores.voice_to_voice);
        overhead.extend(scores.overhead);
        barge_in.extend(scores.barge_in);
        duck.extend(scores.duck);
        report.turns.add(turns);
        report.turns.unanswered += scores.unanswered;
        if let Some(errors) = errors {
            *report.errors.get_or_insert(0) += errors;
        }
        report.audio_frames += call.lateness.frames;
        report.late_audio_frames += call.lateness.late_frames;
        report.concealed_ms += call.lateness.concealed_seconds * 1e3;
        report.callers.late_sends += call.late_sends;
        speaking += scores.speaking_seconds;
        pictures += scores.frames;
        // The frame rate of a call with little speech is not significant.
        if scores.speaking_seconds >= 1.0 {
            let fps = scores.frames as f64 / scores.speaking_seconds;
            worst = Some(worst.map_or(fps, |w| w.min(fps)));
        }
        freezes += scores.freezes;
        has_video |= call.video.frames > 0;
        skew = match (skew, call.video.skew) {
            (Some(a), Some(b)) => Some(if b.abs() > a.abs() { b } else { a }),
            (a, b) => a.or(b),
        };
        report.video.decoded += call.video.decoded;
        report.video.decode_errors += call.video.decode_errors;
        if let Some(call_events) = call_events {
            let sum = events.get_or_insert([0; 3]);
            sum.iter_mut().zip(call_events).for_each(|(sum, n)| *sum += n);
        }
    }
    report.seconds = round_to(measured.seconds, 3);
    report.concealed_ms = round_to(report.concealed_ms, 1);
    report.late_audio = report.late_audio_frames as f64 / report.audio_frames.max(1) as f64;
    report.ms.join = Summary::from_seconds(join);
    report.ms.ttff = Summary::from_seconds(ttff);
    report.ms.voice_to_voice = Summary::from_seconds(v2v);
    report.ms.overhead = Summary::from_seconds(overhead);
    report.ms.barge_in = Summary::from_seconds(barge_in);
    report.ms.duck = Summary::from_seconds(duck);
    report.video = Video {
        fps_speaking: (speaking > 0.0).then(|| round_to(pictures as f64 / speaking, 2)),
        fps_speaking_worst: worst.map(|w| round_to(w, 2)),
        freezes: has_video.then_some(freezes),
        skew_ms: skew.map(|s| round_to(s * 1e3, 2)),
        ..report.video
    };
    if let Some([expected, missing, out_of_order]) = events {
        report.events = WebhookStats {
            expected: Some(expected),
            missing: Some(missing),
            out_of_order: Some(out_of_order),
        };
    }
    report.server = server_stats(&measured, report.calls);
    report.callers = CallerStats {
        cpu_ms_per_call_second: round_to(
            measured.generator_cpu_seconds * 1e3 / measured.call_seconds.max(f64::MIN_POSITIVE),
            3,
        ),
        cores: round_to(
            measured.generator_cpu_seconds / measured.seconds.max(f64::MIN_POSITIVE),
            3,
        ),
        late_sends: report.callers.late_sends,
        cpus: measured.cpus,
    };
    report.soak = measured.soak;
    report.recording = measured.recording.as_ref().map(|(before, after)| {
        let readings = Readings { before, start: &measured.start, end: &measured.end, after };
        RecordingStats::new(&readings, measured.call_seconds)
    });
    report.commit = machine::build_commit();
    report.cpu_model = machine::cpu_model();
    report
}

fn server_stats(measured: &RunMeasurements, calls: usize) -> ServerStats {
    let RunMeasurements { with_one_call: alone, start: begin, end, .. } = measured;
    // The counters of a restarted server start at zero.
    let same_process = |from: &ServerMetrics| from.start_time == end.start_time;
    let growth =
        |from: Option<f64>, to: Option<f64>| Some(to? - from?).filter(|_| same_process(begin));
    let cpu = growth(begin.cpu_seconds, end.cpu_seconds).filter(|_| measured.call_seconds > 0.0);
    let memory = growth(alone.resident_bytes, end.resident_bytes)
        .filter(|_| calls > 1 && same_process(alone));
    ServerStats {
        cpu_ms_per_call_second: cpu.map(|s| round_to(s * 1e3 / measured.call_seconds, 3)),
        rss_bytes: end.resident_bytes.map(|b| b as u64),
        rss_bytes_per_call: memory.map(|m| round_to(m / (calls - 1) as f64, 0)),
        cores: cpu.map(|s| round_to(s / measured.seconds.max(f64::MIN_POSITIVE), 3)),
        audio_frames: growth(begin.audio_frames, end.audio_frames).map(|n| n as u64),
        late_audio_frames: growth(begin.late_audio_frames, end.late_audio_frames).map(|n| n as u64),
    }
}
