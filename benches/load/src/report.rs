//! What a run found: the JSON of `--out`, and the table for people.

use std::fmt::Write as _;

use serde::Serialize;

use crate::stats::Summary;
use crate::turns::Turns;

/// A run's figures. `null` = not measured in this kind of run, or not given by this server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// `webrtc` or `engine-only`.
    pub(crate) mode: &'static str,
    /// What the run was asked to do.
    pub(crate) asked: Asked,
    /// Calls that ran.
    pub(crate) calls: usize,
    /// Calls that could not begin, or broke off.
    pub(crate) failed: usize,
    /// Somebody stopped the run before its end.
    pub(crate) interrupted: bool,
    /// Length of the measured stretch: all calls run in it.
    pub(crate) seconds: f64,
    /// Spreads over all calls, in ms.
    pub(crate) ms: Times,
    /// Frames of sound handed out over 60 ms after the playout clock needed them.
    pub(crate) late_audio_frames: u64,
    /// Frames of sound handed out, and those that never were.
    pub(crate) audio_frames: u64,
    /// The first divided by the second.
    pub(crate) late_audio: f64,
    /// Sound that the callers' playout had to make up, all calls together.
    pub(crate) concealed_ms: f64,
    /// Pictures.
    pub(crate) video: Video,
    /// Turns.
    pub(crate) turns: Turns,
    /// Failures of models and tools in the records of the conversations.
    pub(crate) errors: Option<usize>,
    /// Webhooks.
    pub(crate) events: Events,
    /// What the calls cost the server.
    pub(crate) server: Server,
    /// What they cost here, and whether this tool kept up.
    pub(crate) callers: Callers,
    /// The engine's own figures; only of `engine-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<Engine>,
    /// What stayed behind; only of runs whose calls come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) soak: Option<Soak>,
    /// Commit of this build, with `-dirty` behind it where it was built of something else; empty where it was not built in a checkout.
    pub(crate) commit: String,
    /// The processor.
    pub(crate) cpu_model: String,
}

/// What a run was asked to do, so that it can be done again.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Asked {
    /// `--calls`.
    pub(crate) calls: usize,
    /// Calls that begin in a second.
    pub(crate) ramp: f64,
    /// `--duration`, in s.
    pub(crate) duration: f64,
    /// `--cycle`, in s.
    pub(crate) cycle: Option<f64>,
    /// `--burst`; not of an engine alone, which is given no packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u32>,
    /// `--jitter`, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jitter: Option<u32>,
    /// `--seed`, or the one that was drawn; only with a cycle or jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u32>,
}

/// Spreads in ms.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    /// Asking for the conversation → first packet of the agent's voice.
    pub(crate) join: Summary,
    /// True end of an utterance → first frame of the answer's sound.
    pub(crate) voice_to_voice: Summary,
    /// The same, less what an ideal engine would need.
    pub(crate) overhead: Summary,
    /// True onset of an interruption → end of the last sound.
    pub(crate) barge_in: Summary,
    /// True onset of an interruption → half as loud, or silent.
    pub(crate) duck: Summary,
    /// Asking for the conversation → first whole picture.
    pub(crate) ttff: Summary,
}

/// Pictures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Video {
    /// Pictures a second while the agent speaks: all calls together.
    pub(crate) fps_speaking: Option<f64>,
    /// The call with the fewest.
    pub(crate) fps_speaking_worst: Option<f64>,
    /// Times over 200 ms without a picture.
    pub(crate) freezes: Option<u64>,
    /// How far pictures come behind their sound, by the sender's reports: the largest of all calls' medians.
    pub(crate) skew_ms: Option<f64>,
    /// Pictures decoded by the callers that decode.
    pub(crate) decoded: u64,
    /// Of these, how many could not be.
    pub(crate) decode_errors: u64,
}

/// Webhooks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Events {
    /// In the records of the conversations.
    pub(crate) expected: Option<usize>,
    /// Never came to the receiver, or with a bad signature.
    pub(crate) missing: Option<usize>,
    /// Came before one with a lower number.
    pub(crate) out_of_order: Option<usize>,
}

/// What the calls cost the server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Server {
    /// CPU time for each second of each call.
    pub(crate) cpu_ms_per_call_second: Option<f64>,
    /// Resident memory at the end of the measured stretch.
    pub(crate) rss_bytes: Option<u64>,
    /// Memory of a call beyond the first.
    pub(crate) rss_bytes_per_call: Option<f64>,
    /// Cores that were busy, on average.
    pub(crate) cores: Option<f64>,
    /// Frames of sound the server sent, as it counts them.
    pub(crate) audio_frames: Option<u64>,
    /// Those that it sent late, or not at all, as it counts them.
    pub(crate) late_audio_frames: Option<u64>,
}

/// This tool.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Callers {
    /// CPU time for each second of each call.
    pub(crate) cpu_ms_per_call_second: f64,
    /// Cores that were busy, on average.
    pub(crate) cores: f64,
    /// Packets of the microphones that left over 5 ms late.
    pub(crate) late_sends: u64,
    /// Processors they ran on; all without a list.
    pub(crate) cpus: Vec<usize>,
}

/// The engine, where it runs in this process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Engine {
    /// Media threads.
    pub(crate) media_threads: usize,
    /// CPU time of the media threads for each second of each call.
    pub(crate) media_ms_per_call_second: f64,
    /// CPU time of the scripted models' threads for each second of each call.
    pub(crate) models_ms_per_call_second: f64,
    /// Share of its time that the busiest media thread computed.
    pub(crate) busiest: f64,
    /// Ticks that came over 5 ms late.
    pub(crate) late_ticks: u64,
    /// The latest tick, in ms.
    pub(crate) worst_tick_ms: f64,
    /// Blocks of answers that lacked samples.
    pub(crate) underruns: u64,
}

/// What short calls left behind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Soak {
    /// Calls that came and went.
    pub(crate) calls: usize,
    /// Rise of the server's memory over the last half of the run, by regression.
    pub(crate) rss_slope_bytes_per_s: Option<f64>,
    /// The same over the length of that half, as a share of the memory.
    pub(crate) rss_growth: Option<f64>,
    /// The server's threads in the middle of the run, and when all calls were over.
    pub(crate) threads: [Option<f64>; 2],
    /// Its open files, then and then.
    pub(crate) files: [Option<f64>; 2],
    /// Threads more than before the first call, when all were over.
    pub(crate) threads_grown: Option<f64>,
    /// Open files more than before the first call, sockets among them.
    pub(crate) files_grown: Option<f64>,
    /// Speech decoders that were still taken then.
    pub(crate) decoders_left: Option<f64>,
    /// Calls that the server still held then.
    pub(crate) calls_left: Option<f64>,
}

impl Report {
    /// For people: a line for each figure.
    #[must_use]
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing into a String does not fail.
            let _ = writeln!(text, "{name:<26} {value}");
        };
        let number = |value: Option<f64>, unit: &str| match value {
            Some(value) => format!("{value}{unit}"),
            None => "not measured".to_owned(),
        };
        let given = |value: Option<f64>, unit: &str| match value {
            Some(value) => format!("{value}{unit}"),
            None => "not measured, or not given by this server".to_owned(),
        };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let interrupted = if self.interrupted { "interrupted; " } else { "" };
        let seconds = self.seconds;
        line(
            "calls",
            format!("{}{failed}; {interrupted}measured for {seconds:.1} s ({})", self.calls, self.mode),
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
                    "{}, {} in the worst call, {} freezes, {} behind the sound",
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
                self.errors.filter(|n| *n > 0).map_or(String::new(), |n| format!("; {n} failures of models")),
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
        line("server CPU per call-second", given(server.cpu_ms_per_call_second, " ms"));
        line("server cores busy", given(server.cores, ""));
        let mib = |bytes: f64| (bytes / f64::from(1 << 20) * 100.0).round() / 100.0;
        line("server memory", given(server.rss_bytes.map(|b| mib(b as f64)), " MiB"));
        line("server memory per call", given(server.rss_bytes_per_call.map(mib), " MiB"));
        if self.mode == "webrtc" {
            let late = server.late_audio_frames.zip(server.audio_frames);
            line(
                "server's late frames",
                late.map_or("not given by this server".into(), |(late, of)| format!("{late} of {of}")),
            );
        }
        if let Some(engine) = &self.engine {
            line(
                "media threads",
                format!(
                    "{}: {} ms per call-second, the busiest {:.0} % of the time; models {} ms",
                    engine.media_threads,
                    engine.media_ms_per_call_second,
                    engine.busiest * 100.0,
                    engine.models_ms_per_call_second
                ),
            );
            line("late ticks", format!("{}, the latest {} ms", engine.late_ticks, engine.worst_tick_ms));
        }
        if let Some(soak) = &self.soak {
            let count = |n: Option<f64>| n.map_or("?".to_owned(), |n| n.to_string());
            line(
                "soak",
                format!(
                    "{} calls; memory {} over the last half; threads {} → {}, files {} → {}",
                    soak.calls,
                    given(soak.rss_growth.map(|g| (g * 1e4).round() / 100.0), " %"),
                    count(soak.threads[0]),
                    count(soak.threads[1]),
                    count(soak.files[0]),
                    count(soak.files[1])
                ),
            );
        }
        let (burst, jitter) = (self.asked.burst.unwrap_or(1), self.asked.jitter.unwrap_or(0));
        if burst > 1 || jitter > 0 {
            line("the callers' packets", format!("{burst} at once, up to {jitter} ms late"));
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
