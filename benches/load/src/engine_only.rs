//! `--engine-only`: calls over the loopback transport of an engine in this process. They use no
//! network, codecs or video, but the neural VAD, the real media threads in real time, and scripted
//! models.
//!
//! All callers run on one thread, pinned to other CPUs than the engine's. The thread sends each
//! call 20 ms of audio every 20 ms, half a second ahead. The loopback transport takes a frame when
//! its own clock says that it was spoken. A late caller therefore has no effect until it is half a
//! second late, and then the frame is counted.

mod feeder;
mod models;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use conversation::id::ConversationId;
use conversation::settings::Settings;
use engine::show::Avatars;
use engine::{CallEngine, clock, thread};
use engine_api::{CallConfig, Engine as _, EventSink};

use crate::Error;
use crate::args::Plan;
use crate::machine::{self, CpuList, ThreadTimes};
use crate::report::{self, CallerStats, Report, ServerStats};
use crate::stats::{Summary, round_to};
use crate::turns::TurnStats;
use crate::workload::Workload;
use feeder::{Feeder, RunResult, Snapshot};

/// How often the program polls whether the engine has loaded its models.
const MODELS_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Name of the callers' thread.
const CALLER_THREAD: &str = "callers";

/// Runs the calls and returns the report.
pub(crate) fn run(
    plan: &Plan,
    threads: usize,
    engine_cpus: Option<&CpuList>,
    dir: &Path,
) -> Result<Report, Error> {
    let failed = |e: String| Error::Failed(e);
    let allowed = CpuList::allowed();
    let callers = match (&plan.cpus, allowed.0.as_slice()) {
        (Some(cpus), _) => cpus.clone(),
        // The last CPU, if there are several.
        (None, [.., _, last]) => CpuList(vec![*last]),
        (None, _) => allowed.clone(),
    };
    let rest = allowed.without(&callers);
    let engine_cpus =
        engine_cpus.cloned().unwrap_or(if rest.0.is_empty() { allowed } else { rest });
    // Threads inherit the CPU affinity of the thread that starts them.
    engine_cpus.pin().map_err(failed)?;
    let net = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(engine_cpus.0.len())
        .thread_name("net")
        .enable_all()
        .build()
        .map_err(|e| Error::Failed(e.to_string()))?;
    let (event_sink, commits) = feeder::commit_channel();
    let models =
        models::ScriptedModels::new(dir, plan.workload.script.clone(), net.handle().clone());
    let config = engine::Config { threads, ..engine::Config::default() };
    let client = egress::Client::new(egress::Policy { allow_private: true })
        .map_err(|e| Error::Failed(e.to_string()))?;
    let event_sink: Arc<dyn EventSink> = Arc::new(event_sink);
    let engine = CallEngine::start(
        config,
        Arc::new(models),
        Avatars::default(),
        client,
        event_sink,
        net.handle().clone(),
    )
    .map_err(|e| Error::Failed(e.to_string()))?;
    while let Some(why) = engine.not_ready_reason() {
        if !why.contains("loading") {
            return Err(Error::Failed(why));
        }
        std::thread::sleep(MODELS_POLL_INTERVAL);
    }
    callers.pin().map_err(failed)?;
    let call = call_template(&plan.workload)?;
    let feeder = Feeder::new(plan.clone(), Arc::clone(&engine), call, commits);
    let (done_sender, done_receiver) = crossbeam_channel::bounded(1);
    thread::spawn(CALLER_THREAD, move || {
        // The receiver waits below.
        let _ = done_sender.send(feeder.run());
    })
    .map_err(|e| Error::Failed(e.to_string()))?;
    let result = done_receiver
        .recv()
        .map_err(|_| Error::Failed("the thread of the callers has stopped".into()))?;
    engine.stop(false);
    net.shutdown_background();
    Ok(build_report(threads, callers, result))
}

/// The configuration of every call.
fn call_template(workload: &Workload) -> Result<CallConfig, Error> {
    let mut settings = Settings::product_defaults();
    for (key, value) in &workload.settings {
        let known = settings
            .set(key, value)
            .map_err(|e| Error::Usage(format!("the workload's settings: {e}")))?;
        if !known {
            return Err(Error::Usage(format!("the workload's settings: {key} is unknown")));
        }
    }
    settings.idle_timeout = None;
    settings.max_call_duration = None;
    let spec =
        settings.to_spec().map_err(|e| Error::Usage(format!("the workload's settings: {e}")))?;
    Ok(CallConfig::minimal(ConversationId(0), spec))
}

/// The engine's own counters.
#[derive(Clone, Copy, Debug, Default)]
struct EngineCounters {
    late_ticks: u64,
    worst_tick: u64,
    underruns: u64,
}

impl EngineCounters {
    fn read(engine: &CallEngine) -> Self {
        engine.stats().fold(Self::default(), |sum, stats| Self {
            late_ticks: sum.late_ticks + stats.late_ticks.load(Relaxed),
            worst_tick: sum.worst_tick.max(stats.max_tick_lateness_us.load(Relaxed)),
            underruns: sum.underruns + stats.underruns.load(Relaxed),
        })
    }
}

fn build_report(media_threads: usize, cpus: CpuList, result: RunResult) -> Report {
    let RunResult { calls, failed, start, end, first_call_memory, interrupted } = result;
    let seconds = end.at.saturating_duration_since(start.at).as_secs_f64();
    let call_seconds = (seconds * calls.len() as f64).max(f64::MIN_POSITIVE);
    let cpu_seconds = |prefix: &str| end.threads.cpu_seconds_since(&start.threads, prefix);
    let (media, models, caller_cpu) =
        (cpu_seconds("media-"), cpu_seconds("net"), cpu_seconds(CALLER_THREAD).iter().sum::<f64>());
    let [media_sum, models_sum] = [&media, &models].map(|all| all.iter().sum::<f64>());
    let per_call = |s: f64| round_to(s * 1e3 / call_seconds, 4);
    let busiest = media.iter().copied().fold(0.0, f64::max) / seconds.max(f64::MIN_POSITIVE);
    let mut report = Report {
        mode: "engine-only",
        calls: calls.len(),
        failed,
        interrupted,
        ..Report::default()
    };
    let (mut join, mut v2v, mut overhead, mut barge_in, mut duck) =
        (vec![], vec![], vec![], vec![], vec![]);
    let (mut turns, mut speaking, mut pictures) = (TurnStats::default(), 0.0, 0);
    for call in calls {
        speaking += call.scores.speaking_seconds;
        pictures += call.scores.frames;
        join.push(call.join);
        v2v.extend(call.scores.voice_to_voice);
        overhead.extend(call.scores.overhead);
        barge_in.extend(call.scores.barge_in);
        duck.extend(call.scores.duck);
        turns.add(call.turns);
        turns.unanswered += call.scores.unanswered;
        report.audio_frames += call.lateness.frames;
        report.late_audio_frames += call.lateness.late_frames;
        report.concealed_ms += call.lateness.concealed_seconds * 1e3;
        report.callers.late_sends += call.late_frames;
    }
    report.concealed_ms = round_to(report.concealed_ms, 1);
    report.late_audio = report.late_audio_frames as f64 / (report.audio_frames.max(1)) as f64;
    report.seconds = round_to(seconds, 3);
    report.ms.join = Summary::from_seconds(join);
    report.ms.voice_to_voice = Summary::from_seconds(v2v);
    report.ms.overhead = Summary::from_seconds(overhead);
    report.ms.barge_in = Summary::from_seconds(barge_in);
    report.ms.duck = Summary::from_seconds(duck);
    report.turns = turns;
    // Without an avatar there are no frames.
    report.video.fps_speaking = (pictures > 0).then(|| round_to(pictures as f64 / speaking, 2));
    let memory_growth = end
        .resident_bytes
        .zip(first_call_memory)
        .map(|(end, first_call_memory)| end.saturating_sub(first_call_memory) as f64);
    report.server = ServerStats {
        cpu_ms_per_call_second: Some(per_call(media_sum + models_sum)),
        rss_bytes: end.resident_bytes,
        rss_bytes_per_call: memory_growth
            .filter(|_| report.calls > 1)
            .map(|g| round_to(g / (report.calls - 1) as f64, 0)),
        cores: Some(round_to((media_sum + models_sum) / seconds.max(f64::MIN_POSITIVE), 3)),
        ..ServerStats::default()
    };
    report.callers = CallerStats {
        cpu_ms_per_call_second: per_call(caller_cpu),
        cores: round_to(caller_cpu / seconds.max(f64::MIN_POSITIVE), 3),
        late_sends: report.callers.late_sends,
        cpus: cpus.0,
    };
    report.engine = Some(report::EngineStats {
        media_threads,
        media_ms_per_call_second: per_call(media_sum),
        models_ms_per_call_second: per_call(models_sum),
        busiest: round_to(busiest, 4),
        late_ticks: end.counters.late_ticks - start.counters.late_ticks,
        worst_tick_ms: round_to(end.counters.worst_tick as f64 / 1e3, 2),
        underruns: end.counters.underruns,
    });
    report.commit = machine::build_commit();
    report.cpu_model = machine::cpu_model();
    report
}

impl Snapshot {
    fn capture(engine: &CallEngine) -> Self {
        Self {
            at: clock::now(),
            threads: ThreadTimes::read(),
            resident_bytes: machine::resident_bytes(),
            counters: EngineCounters::read(engine),
        }
    }
}
