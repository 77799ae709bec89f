//! Builds the report of a network run from its calls.

use crate::caller::Call;
use crate::machine;
use crate::metrics::Reading;
use crate::report::{Callers, Events, Report, Server, Soak, Video};
use crate::stats::{Summary, round};
use crate::turns::Turns;

/// A call and the server's record of it.
pub(crate) struct Judged {
    pub(crate) call: Call,
    pub(crate) turns: Turns,
    /// Number of events in the record, of missing webhooks, and of webhooks that arrived out of
    /// order; `None` without a receiver.
    pub(crate) events: Option<[usize; 3]>,
    /// Number of errors in the record.
    pub(crate) errors: Option<usize>,
}

/// Measurements other than the calls'.
#[derive(Default)]
pub(crate) struct Measured {
    /// Metrics with one call.
    pub(crate) alone: Reading,
    /// Metrics at the start of the measurement.
    pub(crate) begin: Reading,
    /// Metrics at its end.
    pub(crate) end: Reading,
    /// Its duration, in s.
    pub(crate) seconds: f64,
    /// Sum of the calls' durations within it, in s.
    pub(crate) call_seconds: f64,
    /// CPU time of this program within it, in s.
    pub(crate) own_cpu: f64,
    /// Number of calls that could not start, or were disconnected.
    pub(crate) failed: usize,
    pub(crate) interrupted: bool,
    /// CPUs that this program is pinned to; empty = not pinned.
    pub(crate) cpus: Vec<usize>,
    pub(crate) soak: Option<Soak>,
}

/// Builds the report.
pub(crate) fn summary(all: Vec<Judged>, measured: Measured) -> Report {
    let mut report = Report {
        mode: "webrtc",
        failed: measured.failed,
        interrupted: measured.interrupted,
        ..Report::default()
    };
    let (mut join, mut ttff, mut v2v, mut overhead) = (vec![], vec![], vec![], vec![]);
    let (mut barge_in, mut duck) = (vec![], vec![]);
    let (mut speaking, mut pictures, mut worst, mut skew) = (0.0, 0, None::<f64>, None::<f64>);
    let (mut freezes, mut seen) = (0, false);
    let mut events: Option<[usize; 3]> = None;
    for Judged { call, turns, events: of_call, errors } in all {
        let counted = call.scores;
        report.calls += usize::from(call.held);
        join.extend(call.join);
        ttff.extend(call.seen.first);
        v2v.extend(counted.voice_to_voice);
        overhead.extend(counted.overhead);
        barge_in.extend(counted.barge_in);
        duck.extend(counted.duck);
        report.turns.add(turns);
        report.turns.unanswered += counted.unanswered;
        if let Some(errors) = errors {
            *report.errors.get_or_insert(0) += errors;
        }
        report.audio_frames += call.late.frames;
        report.late_audio_frames += call.late.late;
        report.concealed_ms += call.late.concealed * 1e3;
        report.callers.late_sends += call.late_sends;
        speaking += counted.speaking;
        pictures += counted.pictures;
        // The frame rate of a call with little speech is not significant.
        if counted.speaking >= 1.0 {
            let fps = counted.pictures as f64 / counted.speaking;
            worst = Some(worst.map_or(fps, |w| w.min(fps)));
        }
        freezes += counted.freezes;
        seen |= call.seen.pictures > 0;
        skew = match (skew, call.seen.skew) {
            (Some(a), Some(b)) => Some(if b.abs() > a.abs() { b } else { a }),
            (a, b) => a.or(b),
        };
        report.video.decoded += call.seen.decoded;
        report.video.decode_errors += call.seen.errors;
        if let Some(of_call) = of_call {
            let sum = events.get_or_insert([0; 3]);
            sum.iter_mut().zip(of_call).for_each(|(sum, n)| *sum += n);
        }
    }
    report.seconds = round(measured.seconds, 3);
    report.concealed_ms = round(report.concealed_ms, 1);
    report.late_audio = report.late_audio_frames as f64 / report.audio_frames.max(1) as f64;
    report.ms.join = Summary::of_seconds(join);
    report.ms.ttff = Summary::of_seconds(ttff);
    report.ms.voice_to_voice = Summary::of_seconds(v2v);
    report.ms.overhead = Summary::of_seconds(overhead);
    report.ms.barge_in = Summary::of_seconds(barge_in);
    report.ms.duck = Summary::of_seconds(duck);
    report.video = Video {
        fps_speaking: (speaking > 0.0).then(|| round(pictures as f64 / speaking, 2)),
        fps_speaking_worst: worst.map(|w| round(w, 2)),
        freezes: seen.then_some(freezes),
        skew_ms: skew.map(|s| round(s * 1e3, 2)),
        ..report.video
    };
    if let Some([expected, missing, out_of_order]) = events {
        report.events =
            Events { expected: Some(expected), missing: Some(missing), out_of_order: Some(out_of_order) };
    }
    report.server = server(&measured, report.calls);
    report.callers = Callers {
        cpu_ms_per_call_second: round(
            measured.own_cpu * 1e3 / measured.call_seconds.max(f64::MIN_POSITIVE),
            3,
        ),
        cores: round(measured.own_cpu / measured.seconds.max(f64::MIN_POSITIVE), 3),
        late_sends: report.callers.late_sends,
        cpus: measured.cpus,
    };
    report.soak = measured.soak;
    report.commit = machine::commit();
    report.cpu_model = machine::cpu_model();
    report
}

fn server(measured: &Measured, calls: usize) -> Server {
    let Measured { alone, begin, end, .. } = measured;
    // The counters of a restarted server start at zero.
    let same = |from: &Reading| from.started == end.started;
    let grown = |from: Option<f64>, to: Option<f64>| Some(to? - from?).filter(|_| same(begin));
    let cpu = grown(begin.cpu, end.cpu).filter(|_| measured.call_seconds > 0.0);
    let memory = grown(alone.resident, end.resident).filter(|_| calls > 1 && same(alone));
    Server {
        cpu_ms_per_call_second: cpu.map(|s| round(s * 1e3 / measured.call_seconds, 3)),
        rss_bytes: end.resident.map(|b| b as u64),
        rss_bytes_per_call: memory.map(|m| round(m / (calls - 1) as f64, 0)),
        cores: cpu.map(|s| round(s / measured.seconds.max(f64::MIN_POSITIVE), 3)),
        audio_frames: grown(begin.frames, end.frames).map(|n| n as u64),
        late_audio_frames: grown(begin.late, end.late).map(|n| n as u64),
    }
}
