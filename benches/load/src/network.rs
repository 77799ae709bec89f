//! A run over the network: an agent, the receiver of its webhooks, callers that start one after
//! another, and the server's metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use conversation::event::WEBHOOK_EVENTS;
use engine::clock;
use futures_util::StreamExt as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::api::Api;
use crate::args::{Agent, Plan, Target};
use crate::caller::{CallerContext, ConnectedCall, FinishedCall, LeaveMode, encode_recording};
use crate::deliveries::wait_for_deliveries;
use crate::machine::{CpuList, ThreadTimes};
use crate::metrics::ServerMetrics;
use crate::pacing::SendSchedule;
use crate::progress::Progress;
use crate::report::Report;
use crate::report_builder::{EvaluatedCall, RunMeasurements, build_report};
use crate::turns::{TurnStats, evaluate_turns};
use crate::webhook_receiver::WebhookReceiver;
use crate::{Error, interrupt_flag, soak};

/// The first call runs alone for this time, so that one-time allocations do not count as the memory
/// of a call.
const FIRST_CALL_ALONE: Duration = Duration::from_secs(2);
/// Time from the start of the last call to the start of the measurement.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Delay before a rejected caller tries again.
const REJECTED_CALLER_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often the state of the calls is polled.
const CALL_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often a soak test reads the server's metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for the complete record of a call and all its webhooks.
const RECORD_TIMEOUT: Duration = Duration::from_secs(40);
/// One in this many callers decodes its video.
const DECODE_EVERY_NTH: usize = 20;
/// Maximum time for which a record may be unreadable; then it counts as lost.
const RECORD_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of records that are read concurrently.
const CONCURRENT_READS: usize = 8;
/// Maximum number of failures that are printed individually.
const MAX_REPORTED_FAILURES: usize = 5;

/// Runs the calls and returns the report.
pub(crate) fn run(plan: &Plan, target: &Target) -> Result<Report, Error> {
    if let Some(cpus) = &plan.cpus {
        cpus.pin().map_err(Error::Failed)?;
    }
    let cpus = plan.cpus.clone().unwrap_or_else(CpuList::allowed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cpus.0.len().max(1))
        .thread_name("callers")
        .enable_all()
        .build()
        .map_err(|e| Error::Failed(e.to_string()))?;
    let result = runtime.block_on(run_async(plan, target));
    runtime.shutdown_background();
    result.map_err(Error::Failed)
}

async fn run_async(plan: &Plan, target: &Target) -> Result<Report, String> {
    let api = Api::new(target)?;
    api.check_ready().await?;
    let (agent, webhooks) = match &target.agent {
        Agent::Existing(id) => (id.clone(), None),
        Agent::Scripted => {
            let authority = format!(
                "{}:{}",
                target.url.host_str().unwrap_or_default(),
                target.url.port_or_known_default().unwrap_or(80)
            );
            let listening = WebhookReceiver::listen(target.is_loopback(), &authority).await;
            let (webhooks, address) =
                listening.map_err(|e| format!("cannot start the webhook receiver: {e}"))?;
            let max_call_duration = plan.duration + ramp_duration(plan) + Duration::from_secs(600);
            let created = api
                .create_scripted_agent(
                    &plan.workload,
                    &format!("http://{address}/"),
                    max_call_duration,
                    target.record,
                )
                .await?;
            webhooks.set_secret(&created.secret)?;
            (created.id, Some(webhooks))
        }
    };
    let context = Arc::new(CallerContext {
        api,
        workload: Arc::clone(&plan.workload),
        microphone_packets: encode_recording(&plan.workload)?,
        agent: agent.clone(),
        data_channel: target.data_channel,
        pacing: target.pacing,
        bind_address: if target.is_loopback() { "127.0.0.1:0" } else { "0.0.0.0:0" },
    });
    let result = run_callers(plan, target, &context, webhooks.as_deref()).await;
    if webhooks.is_some()
        && let Err(why) = context.api.delete_agent(&agent).await
    {
        eprintln!("cannot delete the agent {agent}: {why}");
    }
    result
}

/// Time from the start of the first call to the start of the last one.
fn ramp_duration(plan: &Plan) -> Duration {
    FIRST_CALL_ALONE + Duration::from_secs_f64((plan.calls - 1) as f64 / plan.ramp)
}

/// Counters shared by the callers and the progress display.
#[derive(Default)]
struct CallCounters {
    running: AtomicUsize,
    failed: AtomicUsize,
}

impl CallCounters {
    fn record_failure(&self, why: &str) {
        if self.failed.fetch_add(1, Relaxed) < MAX_REPORTED_FAILURES {
            eprintln!("a call failed: {why}");
        }
    }
}

/// Configuration and random generator of one caller.
struct Caller {
    context: Arc<CallerContext>,
    counters: Arc<CallCounters>,
    stop: watch::Receiver<bool>,
    ends_at: Instant,
    decode_video: bool,
    cycle: Option<Duration>,
    /// Draws the duration and leave mode of its calls, and the delays of its packets.
    rng: StdRng,
}

impl Caller {
    /// Runs one call after another until the end; without `cycle`, a single one.
    async fn run(mut self, mut connected: Option<ConnectedCall>) -> Vec<FinishedCall> {
        let mut calls = Vec::new();
        while clock::now() < self.ends_at && !*self.stop.borrow() {
            let calling = match connected.take() {
                Some(calling) => Ok(calling),
                None => self.context.connect().await,
            };
            let calling = match calling {
                Ok(calling) => calling,
                Err(why) => {
                    self.counters.record_failure(&why);
                    if self.cycle.is_none() {
                        break;
                    }
                    let mut stop = self.stop.clone();
                    let retry_at = (clock::now() + REJECTED_CALLER_RETRY_DELAY).min(self.ends_at);
                    tokio::select! {
                        () = sleep_until(retry_at.into()) => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    continue;
                }
            };
            let now = clock::now();
            let (until, leaving) = match self.cycle {
                None => (self.ends_at, LeaveMode::HangUp),
                Some(cycle) => {
                    let share: f64 = self.rng.random();
                    let leaving =
                        if self.rng.random() { LeaveMode::HangUp } else { LeaveMode::Vanish };
                    ((now + cycle.mul_f64(share)).min(self.ends_at), leaving)
                }
            };
            self.counters.running.fetch_add(1, Relaxed);
            let departures = SendSchedule::new(self.context.pacing, self.rng.random());
            let (callers, stop) = (Arc::clone(&self.context), self.stop.clone());
            let call =
                calling.run(callers, until, stop, self.decode_video, leaving, departures).await;
            self.counters.running.fetch_sub(1, Relaxed);
            if !call.stayed_connected {
                self.counters.record_failure(&format!(
                    "conversation {} was disconnected after {:.1} s",
                    call.conversation, call.duration
                ));
            }
            calls.push(call);
            if self.cycle.is_none() {
                break;
            }
        }
        calls
    }
}

/// A signal that becomes true when the user stops the run; all callers then leave.
fn stop_signal() -> watch::Receiver<bool> {
    let (stop_sender, stop_receiver) = watch::channel(false);
    let flag = interrupt_flag();
    tokio::spawn(async move {
        while !flag.load(Relaxed) {
            tokio::time::sleep(CALL_POLL_INTERVAL).await;
        }
        stop_sender.send_replace(true);
        // The task ends with the last receiver, at the end of the run.
        stop_sender.closed().await;
    });
    stop_receiver
}

async fn run_callers(
    plan: &Plan,
    target: &Target,
    context: &Arc<CallerContext>,
    webhooks: Option<&WebhookReceiver>,
) -> Result<Report, String> {
    let stop = stop_signal();
    let counters = Arc::new(CallCounters::default());
    let before = context.api.read_metrics().await;
    let mut soak_samples = soak::MetricsSamples::new(before);
    let first = context.connect().await?;
    if target.agent == Agent::Scripted
        && let Err(why) = check_scripted_allowed(&context.api, first.conversation_id()).await
    {
        first.leave(context).await;
        return Err(why);
    }
    let started_at = clock::now();
    let measured_from = started_at + ramp_duration(plan) + SETTLE_TIME;
    let ends_at = measured_from + plan.duration;
    let caller = |number: usize| Caller {
        context: Arc::clone(context),
        counters: Arc::clone(&counters),
        stop: stop.clone(),
        ends_at,
        decode_video: number.is_multiple_of(DECODE_EVERY_NTH),
        cycle: target.cycle,
        rng: StdRng::seed_from_u64(u64::from(target.seed) << 32 | number as u64),
    };
    let mut running = JoinSet::new();
    running.spawn(caller(0).run(Some(first)));
    let mut measured = RunMeasurements::default();
    let mut progress = Progress::new(started_at, ends_at - started_at);
    let (mut next, mut begin, mut next_sample_at, mut last_poll_at) =
        (1, None, started_at, started_at);
    // The final metrics are read before the calls hang up.
    while clock::now() + CALL_POLL_INTERVAL < ends_at && !*stop.borrow() {
        let now = clock::now();
        progress.update(
            now,
            counters.running.load(Relaxed),
            plan.calls,
            counters.failed.load(Relaxed),
        );
        while next < plan.calls
            && now
                >= started_at
                    + FIRST_CALL_ALONE
                    + Duration::from_secs_f64((next - 1) as f64 / plan.ramp)
        {
            if next == 1 {
                measured.with_one_call = context.api.read_metrics().await;
            }
            running.spawn(caller(next).run(None));
            next += 1;
        }
        if begin.is_none() && now >= measured_from {
            begin = Some((now, ThreadTimes::read()));
            measured.start = context.api.read_metrics().await;
        }
        if begin.is_some() {
            let since = now.saturating_duration_since(last_poll_at).as_secs_f64();
            measured.call_seconds += counters.running.load(Relaxed) as f64 * since;
        }
        last_poll_at = now;
        if target.cycle.is_some() && now >= next_sample_at {
            next_sample_at += METRICS_INTERVAL;
            let at = now.saturating_duration_since(started_at).as_secs_f64();
            soak_samples.add(at, context.api.read_metrics().await);
        }
        sleep_until((now + CALL_POLL_INTERVAL).min(ends_at).into()).await;
    }
    measured.end = context.api.read_metrics().await;
    if let Some((at, threads)) = begin {
        measured.seconds = clock::now().saturating_duration_since(at).as_secs_f64();
        measured.generator_cpu_seconds =
            ThreadTimes::read().cpu_seconds_since(&threads, "").iter().sum();
    }
    progress.finish();
    let mut all = Vec::new();
    while let Some(calls) = running.join_next().await {
        all.extend(calls.map_err(|e| format!("a caller task failed: {e}"))?);
    }
    measured.interrupted = *stop.borrow();
    measured.cpus = plan.cpus.clone().unwrap_or_default().0;
    let evaluated = evaluate_calls(plan, context, &counters, webhooks, all).await;
    measured.failed = counters.failed.load(Relaxed);
    if target.cycle.is_some() {
        let last = wait_until_idle(&context.api).await;
        measured.soak = Some(soak_samples.summarize(evaluated.len(), last));
    }
    if target.record.is_some() && !measured.interrupted {
        let after = wait_for_deliveries(&context.api, &before, evaluated.len()).await;
        measured.recording = Some((before, after));
    }
    Ok(build_report(evaluated, measured))
}

/// Metrics of a server without calls. Calls whose callers vanished first end by the server's
/// timeouts.
async fn wait_until_idle(api: &Api) -> ServerMetrics {
    let until = clock::now() + RECORD_TIMEOUT;
    loop {
        let reading = api.read_metrics().await;
        if reading.calls.is_none_or(|calls| calls == 0.0) || clock::now() >= until {
            return reading;
        }
        tokio::time::sleep(CALL_POLL_INTERVAL).await;
    }
}

/// Checks that the server allows scripted models. If not, other models serve the agent, with a
/// warning.
async fn check_scripted_allowed(api: &Api, conversation: &str) -> Result<(), String> {
    let until = clock::now() + Duration::from_secs(5);
    // `joined` is recorded together with the warnings that follow it.
    loop {
        let events = api.conversation_events(conversation).await?;
        let mut warnings =
            events.iter().filter(|e| e["what"] == "warning").filter_map(|e| e["text"].as_str());
        if warnings.any(|text| text.contains("\"script\" is not allowed")) {
            return Err(
                "the server does not allow scripted models: run it with --allow-scripted".into()
            );
        }
        let has_joined = events.iter().any(|e| e["what"] == "joined");
        if has_joined || clock::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(CALL_POLL_INTERVAL).await;
    }
}

/// Reads the server's record of each call.
async fn evaluate_calls(
    plan: &Plan,
    context: &CallerContext,
    counters: &CallCounters,
    webhooks: Option<&WebhookReceiver>,
    calls: Vec<FinishedCall>,
) -> Vec<EvaluatedCall> {
    let until = clock::now() + RECORD_TIMEOUT;
    let reading = calls.into_iter().map(|call| async move {
        let Some(record) = read_record(context, webhooks, &call.conversation, until).await else {
            // The failure of a disconnected call was already reported.
            if call.stayed_connected {
                counters.record_failure(&format!(
                    "cannot read the record of conversation {}",
                    call.conversation
                ));
            }
            return EvaluatedCall { call, turns: TurnStats::default(), events: None, errors: None };
        };
        let committed = record.iter().filter(|e| e["what"] == "utterance_committed");
        let committed: Vec<String> =
            committed.filter_map(|e| Some(e["text"].as_str()?.to_owned())).collect();
        let turns = evaluate_turns(&plan.workload, call.duration, &committed);
        let errors = Some(record.iter().filter(|e| e["what"] == "error").count());
        if let Some(reason) = record.iter().find(|e| e["what"] == "ended" && !call.stayed_connected)
        {
            eprintln!("the server ended conversation {}: {}", call.conversation, reason["reason"]);
        }
        let events = webhooks.map(|webhooks| {
            let expected = count_webhooks(&record);
            let compared = webhooks.check_deliveries(&call.conversation, expected);
            [expected, compared.missing, compared.out_of_order]
        });
        EvaluatedCall { call, turns, events, errors }
    });
    futures_util::stream::iter(reading).buffer_unordered(CONCURRENT_READS).collect().await
}

/// Number of events in a record that are sent as webhooks.
fn count_webhooks(record: &[serde_json::Value]) -> usize {
    record
        .iter()
        .filter(|e| e["what"].as_str().is_some_and(|what| WEBHOOK_EVENTS.contains(&what)))
        .count()
}

/// The complete record of a call, once its webhooks have arrived. After `until`, the record as it
/// is; `None` if the server is gone.
async fn read_record(
    context: &CallerContext,
    webhooks: Option<&WebhookReceiver>,
    conversation: &str,
    until: Instant,
) -> Option<Vec<serde_json::Value>> {
    let give_up_at = clock::now() + RECORD_READ_TIMEOUT;
    loop {
        let events = match context.api.conversation_events(conversation).await {
            Ok(events) => events,
            Err(_) if clock::now() >= give_up_at => return None,
            Err(_) => {
                tokio::time::sleep(CALL_POLL_INTERVAL).await;
                continue;
            }
        };
        let ended = events.iter().any(|e| e["what"] == "ended");
        let delivered = webhooks.is_none_or(|webhooks| {
            webhooks.count_distinct(conversation) >= count_webhooks(&events)
        });
        if ended && delivered || clock::now() >= until {
            return Some(events);
        }
        tokio::time::sleep(CALL_POLL_INTERVAL).await;
    }
}
