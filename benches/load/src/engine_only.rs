//! `--engine-only`: calls over the loopback transport of an engine in this process. They use no
//! network, codecs or video, but the neural VAD, the real media threads in real time, and scripted
//! models.
//!
//! All callers run on one thread, pinned to other CPUs than the engine's. The thread sends each
//! call 20 ms of audio every 20 ms, half a second ahead. The loopback transport takes a frame when
//! its own clock says that it was spoken. A late caller therefore has no effect until it is half a
//! second late, and then the frame is counted.

mod feed;
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
use crate::machine::{self, Cpus, Threads};
use crate::report::{self, Callers, Report, Server};
use crate::stats::{Summary, round};
use crate::turns::Turns;
use crate::workload::Workload;
use feed::{Feeder, Mark, Ran};

/// How often the program polls whether the engine has loaded its models.
const LOOK: Duration = Duration::from_millis(5);
/// Name of the callers' thread.
const CALLERS: &str = "callers";

/// Runs the calls and returns the report.
pub(crate) fn run(
    plan: &Plan,
    threads: usize,
    engine_cpus: Option<&Cpus>,
    dir: &Path,
) -> Result<Report, Error> {
    let failed = |e: String| Error::Failed(e);
    let allowed = Cpus::allowed();
    let callers = match (&plan.cpus, allowed.0.as_slice()) {
        (Some(cpus), _) => cpus.clone(),
        // The last CPU, if there are several.
        (None, [.., _, last]) => Cpus(vec![*last]),
        (None, _) => allowed.clone(),
    };
    let rest = allowed.without(&callers);
    let engine_cpus = engine_cpus.cloned().unwrap_or(if rest.0.is_empty() { allowed } else { rest });
    // Threads inherit the CPU affinity of the thread that starts them.
    engine_cpus.pin().map_err(failed)?;
    let net = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(engine_cpus.0.len())
        .thread_name("net")
        .enable_all()
        .build()
        .map_err(|e| Error::Failed(e.to_string()))?;
    let (ledger, committed) = feed::ledger();
    let models = models::ScriptedModels::new(dir, plan.workload.script.clone(), net.handle().clone());
    let config = engine::Config { threads, ..engine::Config::default() };
    let client = egress::Client::new(egress::Policy { allow_private: true })
        .map_err(|e| Error::Failed(e.to_string()))?;
    let ledger: Arc<dyn EventSink> = Arc::new(ledger);
    let engine =
        CallEngine::start(config, Arc::new(models), Avatars::default(), client, ledger, net.handle().clone())
            .map_err(|e| Error::Failed(e.to_string()))?;
    while let Some(why) = engine.not_ready_reason() {
        if !why.contains("loading") {
            return Err(Error::Failed(why));
        }
        std::thread::sleep(LOOK);
    }
    callers.pin().map_err(failed)?;
    let call = call(&plan.workload)?;
    let feeder = Feeder::new(plan.clone(), Arc::clone(&engine), call, committed);
    let (tell, told) = crossbeam_channel::bounded(1);
    thread::spawn(CALLERS, move || {
        // The receiver waits below.
        let _ = tell.send(feeder.run());
    })
    .map_err(|e| Error::Failed(e.to_string()))?;
    let ran = told.recv().map_err(|_| Error::Failed("the thread of the callers has stopped".into()))?;
    engine.stop(false);
    net.shutdown_background();
    Ok(report(threads, callers, ran))
}

/// The configuration of every call.
fn call(workload: &Workload) -> Result<CallConfig, Error> {
    let mut settings = Settings::product_defaults();
    for (key, value) in &workload.settings {
        let known =
            settings.set(key, value).map_err(|e| Error::Usage(format!("the workload's settings: {e}")))?;
        if !known {
            return Err(Error::Usage(format!("the workload's settings: {key} is unknown")));
        }
    }
    settings.idle_timeout = None;
    settings.max_call_duration = None;
    let spec = settings.to_spec().map_err(|e| Error::Usage(format!("the workload's settings: {e}")))?;
    Ok(CallConfig::minimal(ConversationId(0), spec))
}

/// The engine's own counters.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    late_ticks: u64,
    worst_tick: u64,
    underruns: u64,
}

impl Counts {
    fn read(engine: &CallEngine) -> Self {
        engine.stats().fold(Self::default(), |sum, stats| Self {
            late_ticks: sum.late_ticks + stats.late_ticks.load(Relaxed),
            worst_tick: sum.worst_tick.max(stats.max_tick_lateness_us.load(Relaxed)),
            underruns: sum.underruns + stats.underruns.load(Relaxed),
        })
    }
}

fn report(media_threads: usize, cpus: Cpus, ran: Ran) -> Report {
    let Ran { calls, failed, begin, end, first, interrupted } = ran;
    let seconds = end.at.saturating_duration_since(begin.at).as_secs_f64();
    let call_seconds = (seconds * calls.len() as f64).max(f64::MIN_POSITIVE);
    let spent = |prefix: &str| end.threads.since(&begin.threads, prefix);
    let (media, models, own) = (spent("media-"), spent("net"), spent(CALLERS).iter().sum::<f64>());
    let [media_sum, models_sum] = [&media, &models].map(|all| all.iter().sum::<f64>());
    let per_call = |s: f64| round(s * 1e3 / call_seconds, 4);
    let busiest = media.iter().copied().fold(0.0, f64::max) / seconds.max(f64::MIN_POSITIVE);
    let mut report =
        Report { mode: "engine-only", calls: calls.len(), failed, interrupted, ..Report::default() };
    let (mut join, mut v2v, mut overhead, mut barge_in, mut duck) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut turns, mut speaking, mut pictures) = (Turns::default(), 0.0, 0);
    for call in calls {
        speaking += call.scores.speaking;
        pictures += call.scores.pictures;
        join.push(call.join);
        v2v.extend(call.scores.voice_to_voice);
        overhead.extend(call.scores.overhead);
        barge_in.extend(call.scores.barge_in);
        duck.extend(call.scores.duck);
        turns.add(call.turns);
        turns.unanswered += call.scores.unanswered;
        report.audio_frames += call.late.frames;
        report.late_audio_frames += call.late.late;
        report.concealed_ms += call.late.concealed * 1e3;
        report.callers.late_sends += call.late_feeds;
    }
    report.concealed_ms = round(report.concealed_ms, 1);
    report.late_audio = report.late_audio_frames as f64 / (report.audio_frames.max(1)) as f64;
    report.seconds = round(seconds, 3);
    report.ms.join = Summary::of_seconds(join);
    report.ms.voice_to_voice = Summary::of_seconds(v2v);
    report.ms.overhead = Summary::of_seconds(overhead);
    report.ms.barge_in = Summary::of_seconds(barge_in);
    report.ms.duck = Summary::of_seconds(duck);
    report.turns = turns;
    // Without an avatar there are no frames.
    report.video.fps_speaking = (pictures > 0).then(|| round(pictures as f64 / speaking, 2));
    let grown = end.resident.zip(first).map(|(end, first)| end.saturating_sub(first) as f64);
    report.server = Server {
        cpu_ms_per_call_second: Some(per_call(media_sum + models_sum)),
        rss_bytes: end.resident,
        rss_bytes_per_call: grown
            .filter(|_| report.calls > 1)
            .map(|g| round(g / (report.calls - 1) as f64, 0)),
        cores: Some(round((media_sum + models_sum) / seconds.max(f64::MIN_POSITIVE), 3)),
        ..Server::default()
    };
    report.callers = Callers {
        cpu_ms_per_call_second: per_call(own),
        cores: round(own / seconds.max(f64::MIN_POSITIVE), 3),
        late_sends: report.callers.late_sends,
        cpus: cpus.0,
    };
    report.engine = Some(report::Engine {
        media_threads,
        media_ms_per_call_second: per_call(media_sum),
        models_ms_per_call_second: per_call(models_sum),
        busiest: round(busiest, 4),
        late_ticks: end.counts.late_ticks - begin.counts.late_ticks,
        worst_tick_ms: round(end.counts.worst_tick as f64 / 1e3, 2),
        underruns: end.counts.underruns,
    });
    report.commit = machine::commit();
    report.cpu_model = machine::cpu_model();
    report
}

impl Mark {
    fn now(engine: &CallEngine) -> Self {
        Self {
            at: clock::now(),
            threads: Threads::read(),
            resident: machine::resident(),
            counts: Counts::read(engine),
        }
    }
}
