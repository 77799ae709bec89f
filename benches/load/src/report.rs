//! Results of a run: the JSON of `--out`, and a table for the terminal.

use std::fmt::Write as _;

use serde::Serialize;

use crate::recording::{RecordedChannels, RecordingStats};
use crate::stats::Summary;
use crate::turns::TurnStats;

/// Results of a run. `null` = not measured in this mode, or not exposed by this server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// `webrtc` or `engine-only`.
    pub(crate) mode: &'static str,
    /// The settings of the run.
    #[serde(rename = "asked")]
    pub(crate) settings: RunSettings,
    /// Number of completed calls.
    pub(crate) calls: usize,
    /// Number of calls that could not start, or were disconnected.
    pub(crate) failed: usize,
    /// Whether the user or the system stopped the run early.
    pub(crate) interrupted: bool,
    /// Duration of the measurement in s, during which all calls run.
    pub(crate) seconds: f64,
    /// Distributions over all calls, in ms.
    pub(crate) ms: Times,
    /// Number of audio frames delivered over 60 ms after the playout clock needed them, or missing.
    pub(crate) late_audio_frames: u64,
    /// Number of audio frames, delivered or missing.
    pub(crate) audio_frames: u64,
    /// `late_audio_frames` divided by `audio_frames`.
    pub(crate) late_audio: f64,
    /// Audio that the callers' playout had to conceal, over all calls, in ms.
    pub(crate) concealed_ms: f64,
    /// Video.
    pub(crate) video: Video,
    /// Turns.
    pub(crate) turns: TurnStats,
    /// Number of errors of models and tools in the records of the conversations.
    pub(crate) errors: Option<usize>,
    /// Webhooks.
    pub(crate) events: WebhookStats,
    /// Cost of the calls on the server.
    pub(crate) server: ServerStats,
    /// Cost of the calls in this program, and whether it kept up.
    pub(crate) callers: CallerStats,
    /// The engine's own results; only with `engine-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<EngineStats>,
    /// Resources that the server did not release; only for runs with `--cycle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) soak: Option<SoakStats>,
    /// Cost of the recordings; only for runs with `--record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recording: Option<RecordingStats>,
    /// Commit of this build; with the suffix `-dirty` if the checkout had changes, and empty
    /// outside a checkout.
    pub(crate) commit: String,
    /// The CPU model.
    pub(crate) cpu_model: String,
}

/// Settings of a run, so that it can be repeated.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RunSettings {
    /// `--calls`.
    pub(crate) calls: usize,
    /// Calls started per second.
    pub(crate) ramp: f64,
    /// `--duration`, in s.
    pub(crate) duration: f64,
    /// `--cycle`, in s.
    pub(crate) cycle: Option<f64>,
    /// `--burst`; absent with `engine-only`, where no packets are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u32>,
    /// `--jitter`, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jitter: Option<u32>,
    /// `--seed`, or the random one; only with `--cycle` or `--jitter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u32>,
    /// `--record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<RecordedChannels>,
}

/// Distributions, in ms.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    /// Request for the conversation → first audio packet of the agent.
    pub(crate) join: Summary,
    /// True end of an utterance → first audio frame of the reply.
    pub(crate) voice_to_voice: Summary,
    /// The same, minus the time of an ideal engine.
    pub(crate) overhead: Summary,
    /// True onset of an interruption → end of the last sound.
    pub(crate) barge_in: Summary,
    /// True onset of an interruption → half the level, or silence.
    pub(crate) duck: Summary,
    /// Request for the conversation → first complete video frame.
    pub(crate) ttff: Summary,
}

/// Video.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Video {
    /// Frames per second while the agent speaks, over all calls.
    pub(crate) fps_speaking: Option<f64>,
    /// The same of the call with the lowest rate.
    pub(crate) fps_speaking_worst: Option<f64>,
    /// Number of intervals over 200 ms without a frame while the agent speaks.
    pub(crate) freezes: Option<u64>,
    /// Delay of the video behind its audio, from the sender reports: of all calls' medians, the one
    /// with the largest magnitude.
    pub(crate) skew_ms: Option<f64>,
    /// Number of frames decoded, by the callers that decode.
    pub(crate) decoded: u64,
    /// Number of frames that these callers could not decode; they are not part of `decoded`.
    pub(crate) decode_errors: u64,
}

/// Webhooks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct WebhookStats {
    /// Number of webhook events in the records of the conversations.
    pub(crate) expected: Option<usize>,
    /// Number that did not arrive, or only with an invalid signature.
    pub(crate) missing: Option<usize>,
    /// Number that arrived after one with a higher sequence number.
    pub(crate) out_of_order: Option<usize>,
}

/// Cost of the calls on the server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct ServerStats {
    /// CPU time per second of a call, in ms.
    pub(crate) cpu_ms_per_call_second: Option<f64>,
    /// Resident memory at the end of the measurement.
    pub(crate) rss_bytes: Option<u64>,
    /// Memory of each call after the first one.
    pub(crate) rss_bytes_per_call: Option<f64>,
    /// Average number of busy cores.
    pub(crate) cores: Option<f64>,
    /// Number of audio frames that the server sent, by its own count.
    pub(crate) audio_frames: Option<u64>,
    /// Number of audio frames that the server sent late or not at all, by its own count.
    pub(crate) late_audio_frames: Option<u64>,
}

/// Cost of this program.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CallerStats {
    /// CPU time per second of a call, in ms.
    pub(crate) cpu_ms_per_call_second: f64,
    /// Average number of busy cores.
    pub(crate) cores: f64,
    /// Number of microphone packets sent over 5 ms late.
    pub(crate) late_sends: u64,
    /// CPUs that the callers are pinned to; empty = not pinned.
    pub(crate) cpus: Vec<usize>,
}

/// Results of the in-process engine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct EngineStats {
    /// Number of media threads.
    pub(crate) media_threads: usize,
    /// CPU time of the media threads per second of a call, in ms.
    pub(crate) media_ms_per_call_second: f64,
    /// CPU time of the scripted models' threads per second of a call, in ms.
    pub(crate) models_ms_per_call_second: f64,
    /// Busy share of the busiest media thread, 0 to 1.
    pub(crate) busiest: f64,
    /// Number of ticks over 5 ms late.
    pub(crate) late_ticks: u64,
    /// Lateness of the latest tick since the start, in ms.
    pub(crate) worst_tick_ms: f64,
    /// Number of audio frames of replies that lacked samples, since the start.
    pub(crate) underruns: u64,
}

/// Resources that short calls left behind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SoakStats {
    /// Number of calls.
    pub(crate) calls: usize,
    /// Growth rate of the server's memory over the second half of the run, by linear regression.
    pub(crate) rss_slope_bytes_per_s: Option<f64>,
    /// The growth over that half, as a share of the memory.
    pub(crate) rss_growth: Option<f64>,
    /// Number of the server's threads in the middle of the run, and after all calls.
    pub(crate) threads: [Option<f64>; 2],
    /// Number of its open files at the same times.
    pub(crate) files: [Option<f64>; 2],
    /// Growth of the number of threads, from before the first call to after all calls.
    pub(crate) threads_grown: Option<f64>,
    /// Growth of the number of open files, including sockets, over the same time.
    pub(crate) files_grown: Option<f64>,
    /// STT decoders that were still in use after all calls.
    pub(crate) decoders_left: Option<f64>,
    /// Calls that the server still had after all calls.
    pub(crate) calls_left: Option<f64>,
}

impl Report {
    /// The table for the terminal: one line per result.
    #[must_use]
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name:<26} {value}");
        };
        let number = |value: Option<f64>, unit: &str| match value {
            Some(value) => format!("{value}{unit}"),
            None => "not measured".to_owned(),
        };
        let server_value = |value: Option<f64>, unit: &str| match value {
            Some(value) => format!("{value}{unit}"),
            None => "not measured, or not reported by this server".to_owned(),
        };
        let failed =
            if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let interrupted = if self.interrupted { "interrupted; " } else { "" };
        let seconds = self.seconds;
        line(
            "calls",
            format!(
                "{}{failed}; {interrupted}measured for {seconds:.1} s ({})",
                self.calls, self.mode
            ),
        );
        line("ms", format!("{:>9} {:>9} {:>9} {:>9} {:>7}", "p50", "p95", "p99", "max", "n"));
        let times = [
            ("join", self.ms.join),
            ("voice to voice", self.ms.voice_to_voice),
            ("  over an ideal engine", self.ms.overhead),
            ("barge-in to silence", self.ms.barge_in),
            ("barge-in to ducked", self.ms.duck),
            ("first picture", self.ms.ttff),
        ];
        for (name, s) in times {
            let cell = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.1}"));
            let [p50, p95, p99, max] = [s.p50, s.p95, s.p99, s.max].map(cell);
            line(name, format!("{p50:>9} {p95:>9} {p99:>9} {max:>9} {:>7}", s.n));
        }
        line(
            "audio",
            format!(
                "{} of {} frames late, {} ms concealed",
                self.late_audio_frames, self.audio_frames, self.concealed_ms
            ),
        );
        if self.mode == "webrtc" {
            line(
                "video while speaking",
                format!(
                    "{}, {} in the worst call, {} freezes, {} behind the audio",
                    number(self.video.fps_speaking, " fps"),
                    number(self.video.fps_speaking_worst, " fps"),
                    number(self.video.freezes.map(|n| n as f64), ""),
                    number(self.video.skew_ms, " ms")
                ),
            );
        }
        let turns = self.turns;
        line(
            "turns",
            format!(
                "{} right, {} wrong, {} missing of {}; {} unanswered{}",
                turns.right,
                turns.wrong,
                turns.missing,
                turns.expected,
                turns.unanswered,
                self.errors
                    .filter(|n| *n > 0)
                    .map_or(String::new(), |n| format!("; {n} model failures")),
            ),
        );
        let events = &self.events;
        line(
            "webhooks",
            match (events.expected, events.missing, events.out_of_order) {
                (Some(expected), Some(missing), Some(order)) => {
                    format!("{missing} of {expected} missing, {order} out of order")
                }
                _ => "not measured".to_owned(),
            },
        );
        let server = &self.server;
        line("server CPU per call-second", server_value(server.cpu_ms_per_call_second, " ms"));
        line("server cores busy", server_value(server.cores, ""));
        let mib = |bytes: f64| (bytes / f64::from(1 << 20) * 100.0).round() / 100.0;
        line("server memory", server_value(server.rss_bytes.map(|b| mib(b as f64)), " MiB"));
        line("server memory per call", server_value(server.rss_bytes_per_call.map(mib), " MiB"));
        if self.mode == "webrtc" {
            let late = server.late_audio_frames.zip(server.audio_frames);
            line(
                "server late frames",
                late.map_or("not reported by this server".into(), |(late, of)| {
                    format!("{late} of {of}")
                }),
            );
        }
        if let Some(engine) = &self.engine {
            line(
                "media threads",
                format!(
                    "{}: {} ms per call-second, busiest thread {:.0} %; models {} ms",
                    engine.media_threads,
                    engine.media_ms_per_call_second,
                    engine.busiest * 100.0,
                    engine.models_ms_per_call_second
                ),
            );
            line("late ticks", format!("{}, worst {} ms", engine.late_ticks, engine.worst_tick_ms));
        }
        if let Some(soak) = &self.soak {
            let count = |n: Option<f64>| n.map_or("?".to_owned(), |n| n.to_string());
            line(
                "soak",
                format!(
                    "{} calls; memory {} over the last half; threads {} → {}, files {} → {}",
                    soak.calls,
                    server_value(soak.rss_growth.map(|g| (g * 1e4).round() / 100.0), " %"),
                    count(soak.threads[0]),
                    count(soak.threads[1]),
                    count(soak.files[0]),
                    count(soak.files[1])
                ),
            );
        }
        if let Some(recording) = &self.recording {
            for (name, value) in recording.lines() {
                line(name, value);
            }
        }
        let (burst, jitter) = (self.settings.burst.unwrap_or(1), self.settings.jitter.unwrap_or(0));
        if burst > 1 || jitter > 0 {
            line("caller packets", format!("bursts of {burst}, up to {jitter} ms late"));
        }
        let callers = &self.callers;
        line(
            "callers",
            format!(
                "{} ms of CPU per call-second, {} cores busy, {} packets sent late",
                callers.cpu_ms_per_call_second, callers.cores, callers.late_sends
            ),
        );
        text
    }
}
