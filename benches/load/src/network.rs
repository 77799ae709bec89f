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
use crate::caller::{Call, Callers, Calling, Leaving, encode};
use crate::hooks::Hooks;
use crate::machine::{Cpus, Threads};
use crate::metrics::Reading;
use crate::pacing::Departures;
use crate::progress::Progress;
use crate::report::Report;
use crate::summary::{Judged, Measured, summary};
use crate::turns::{Turns, judged};
use crate::{Error, interrupted, soak};

/// The first call runs alone for this time, so that one-time allocations do not count as the memory
/// of a call.
const ALONE: Duration = Duration::from_secs(2);
/// Time from the start of the last call to the start of the measurement.
const SETTLE: Duration = Duration::from_secs(1);
/// Delay before a rejected caller tries again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often the running calls are counted.
const LOOK: Duration = Duration::from_millis(100);
/// How often a soak test reads the server's metrics.
const SAMPLE: Duration = Duration::from_secs(1);
/// Maximum wait for the complete record of a call and all its webhooks.
const RECORDS: Duration = Duration::from_secs(40);
/// One in this many callers decodes its video.
const DECODES: usize = 20;
/// Maximum time for which a record may be unreadable; then it counts as lost.
const UNREAD: Duration = Duration::from_secs(3);
/// Number of records that are read concurrently.
const READERS: usize = 8;
/// Maximum number of failures that are printed individually.
const TOLD: usize = 5;

/// Runs the calls and returns the report.
pub(crate) fn run(plan: &Plan, target: &Target) -> Result<Report, Error> {
    if let Some(cpus) = &plan.cpus {
        cpus.pin().map_err(Error::Failed)?;
    }
    let cpus = plan.cpus.clone().unwrap_or_else(Cpus::allowed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cpus.0.len().max(1))
        .thread_name("callers")
        .enable_all()
        .build()
        .map_err(|e| Error::Failed(e.to_string()))?;
    let result = runtime.block_on(whole(plan, target));
    runtime.shutdown_background();
    result.map_err(Error::Failed)
}

async fn whole(plan: &Plan, target: &Target) -> Result<Report, String> {
    let api = Api::new(target)?;
    api.ready().await?;
    let (agent, hooks) = match &target.agent {
        Agent::Own(id) => (id.clone(), None),
        Agent::Scripted => {
            let authority = format!(
                "{}:{}",
                target.url.host_str().unwrap_or_default(),
                target.url.port_or_known_default().unwrap_or(80)
            );
            let listening = Hooks::listen(target.is_loopback(), &authority).await;
            let (hooks, address) =
                listening.map_err(|e| format!("cannot start the webhook receiver: {e}"))?;
            let longest = plan.duration + ramp(plan) + Duration::from_secs(600);
            let made = api.scripted_agent(&plan.workload, &format!("http://{address}/"), longest).await?;
            hooks.set_secret(&made.secret)?;
            (made.id, Some(hooks))
        }
    };
    let callers = Arc::new(Callers {
        api,
        workload: Arc::clone(&plan.workload),
        microphone: encode(&plan.workload)?,
        agent: agent.clone(),
        channel: target.channel,
        pace: target.pace,
        bind: if target.is_loopback() { "127.0.0.1:0" } else { "0.0.0.0:0" },
    });
    let result = calls(plan, target, &callers, hooks.as_deref()).await;
    if hooks.is_some()
        && let Err(why) = callers.api.delete_agent(&agent).await
    {
        eprintln!("cannot delete the agent {agent}: {why}");
    }
    result
}

/// Time from the start of the first call to the start of the last one.
fn ramp(plan: &Plan) -> Duration {
    ALONE + Duration::from_secs_f64((plan.calls - 1) as f64 / plan.ramp)
}

/// Counters shared by the callers and the progress display.
#[derive(Default)]
struct Count {
    running: AtomicUsize,
    failed: AtomicUsize,
}

impl Count {
    fn fail(&self, why: &str) {
        if self.failed.fetch_add(1, Relaxed) < TOLD {
            eprintln!("a call failed: {why}");
        }
    }
}

/// Configuration and random generator of one caller.
struct Caller {
    callers: Arc<Callers>,
    count: Arc<Count>,
    stop: watch::Receiver<bool>,
    ends: Instant,
    decodes: bool,
    cycle: Option<Duration>,
    /// Draws the duration and leave mode of its calls, and the delays of its packets.
    chance: StdRng,
}

impl Caller {
    /// Runs one call after another until the end; without `cycle`, a single one.
    async fn run(mut self, mut connected: Option<Calling>) -> Vec<Call> {
        let mut calls = Vec::new();
        while clock::now() < self.ends && !*self.stop.borrow() {
            let calling = match connected.take() {
                Some(calling) => Ok(calling),
                None => self.callers.connect().await,
            };
            let calling = match calling {
                Ok(calling) => calling,
                Err(why) => {
                    self.count.fail(&why);
                    if self.cycle.is_none() {
                        break;
                    }
                    let mut stop = self.stop.clone();
                    tokio::select! {
                        () = sleep_until((clock::now() + AGAIN).min(self.ends).into()) => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    continue;
                }
            };
            let now = clock::now();
            let (until, leaving) = match self.cycle {
                None => (self.ends, Leaving::HangsUp),
                Some(cycle) => {
                    let share: f64 = self.chance.random();
                    let leaving = if self.chance.random() { Leaving::HangsUp } else { Leaving::Vanishes };
                    ((now + cycle.mul_f64(share)).min(self.ends), leaving)
                }
            };
            self.count.running.fetch_add(1, Relaxed);
            let departures = Departures::new(self.callers.pace, self.chance.random());
            let (callers, stop) = (Arc::clone(&self.callers), self.stop.clone());
            let call = calling.talk(callers, until, stop, self.decodes, leaving, departures).await;
            self.count.running.fetch_sub(1, Relaxed);
            if !call.held {
                self.count.fail(&format!(
                    "conversation {} was disconnected after {:.1} s",
                    call.conversation, call.whole
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
fn stopping() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    let flag = interrupted();
    tokio::spawn(async move {
        while !flag.load(Relaxed) {
            tokio::time::sleep(LOOK).await;
        }
        tell.send_replace(true);
        // The task ends with the last receiver, at the end of the run.
        tell.closed().await;
    });
    told
}

async fn reading(api: &Api) -> Reading {
    api.metrics().await.map(|text| Reading::parse(&text)).unwrap_or_default()
}

async fn calls(
    plan: &Plan,
    target: &Target,
    callers: &Arc<Callers>,
    hooks: Option<&Hooks>,
) -> Result<Report, String> {
    let stop = stopping();
    let count = Arc::new(Count::default());
    let mut soaking = soak::Samples::new(reading(&callers.api).await);
    let first = callers.connect().await?;
    if target.agent == Agent::Scripted
        && let Err(why) = allowed(&callers.api, first.conversation()).await
    {
        first.leave(callers).await;
        return Err(why);
    }
    let begun = clock::now();
    let measured_from = begun + ramp(plan) + SETTLE;
    let ends = measured_from + plan.duration;
    let caller = |number: usize| Caller {
        callers: Arc::clone(callers),
        count: Arc::clone(&count),
        stop: stop.clone(),
        ends,
        decodes: number.is_multiple_of(DECODES),
        cycle: target.cycle,
        chance: StdRng::seed_from_u64(u64::from(target.seed) << 32 | number as u64),
    };
    let mut running = JoinSet::new();
    running.spawn(caller(0).run(Some(first)));
    let mut measured = Measured::default();
    let mut progress = Progress::new(begun, ends - begun);
    let (mut next, mut begin, mut sampled, mut looked) = (1, None, begun, begun);
    // The final metrics are read before the calls hang up.
    while clock::now() + LOOK < ends && !*stop.borrow() {
        let now = clock::now();
        progress.tell(now, count.running.load(Relaxed), plan.calls, count.failed.load(Relaxed));
        while next < plan.calls
            && now >= begun + ALONE + Duration::from_secs_f64((next - 1) as f64 / plan.ramp)
        {
            if next == 1 {
                measured.alone = reading(&callers.api).await;
            }
            running.spawn(caller(next).run(None));
            next += 1;
        }
        if begin.is_none() && now >= measured_from {
            begin = Some((now, Threads::read()));
            measured.begin = reading(&callers.api).await;
        }
        if begin.is_some() {
            let since = now.saturating_duration_since(looked).as_secs_f64();
            measured.call_seconds += count.running.load(Relaxed) as f64 * since;
        }
        looked = now;
        if target.cycle.is_some() && now >= sampled {
            sampled += SAMPLE;
            let at = now.saturating_duration_since(begun).as_secs_f64();
            soaking.add(at, reading(&callers.api).await);
        }
        sleep_until((now + LOOK).min(ends).into()).await;
    }
    measured.end = reading(&callers.api).await;
    if let Some((at, threads)) = begin {
        measured.seconds = clock::now().saturating_duration_since(at).as_secs_f64();
        measured.own_cpu = Threads::read().since(&threads, "").iter().sum();
    }
    progress.end();
    let mut all = Vec::new();
    while let Some(calls) = running.join_next().await {
        all.extend(calls.map_err(|e| format!("a caller task failed: {e}"))?);
    }
    measured.interrupted = *stop.borrow();
    measured.cpus = plan.cpus.clone().unwrap_or_default().0;
    let judged = judge(plan, callers, &count, hooks, all).await;
    measured.failed = count.failed.load(Relaxed);
    if target.cycle.is_some() {
        let last = settled(&callers.api).await;
        measured.soak = Some(soaking.summary(judged.len(), last));
    }
    Ok(summary(judged, measured))
}

/// Metrics of a server without calls. Calls whose callers vanished first end by the server's
/// timeouts.
async fn settled(api: &Api) -> Reading {
    let until = clock::now() + RECORDS;
    loop {
        let reading = reading(api).await;
        if reading.calls.is_none_or(|calls| calls == 0.0) || clock::now() >= until {
            return reading;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Checks that the server allows scripted models. If not, other models serve the agent, with a
/// warning.
async fn allowed(api: &Api, conversation: &str) -> Result<(), String> {
    let until = clock::now() + Duration::from_secs(5);
    // `joined` is recorded together with the warnings that follow it.
    loop {
        let events = api.events(conversation).await?;
        let mut warnings =
            events.iter().filter(|e| e["what"] == "warning").filter_map(|e| e["text"].as_str());
        if warnings.any(|text| text.contains("\"script\" is not allowed")) {
            return Err("the server does not allow scripted models: run it with --allow-scripted".into());
        }
        let begun = events.iter().any(|e| e["what"] == "joined");
        if begun || clock::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Reads the server's record of each call.
async fn judge(
    plan: &Plan,
    callers: &Callers,
    count: &Count,
    hooks: Option<&Hooks>,
    calls: Vec<Call>,
) -> Vec<Judged> {
    let until = clock::now() + RECORDS;
    let reading = calls.into_iter().map(|call| async move {
        let Some(record) = record(callers, hooks, &call.conversation, until).await else {
            // The failure of a disconnected call was already reported.
            if call.held {
                count.fail(&format!("cannot read the record of conversation {}", call.conversation));
            }
            return Judged { call, turns: Turns::default(), events: None, errors: None };
        };
        let committed = record.iter().filter(|e| e["what"] == "utterance_committed");
        let committed: Vec<String> = committed.filter_map(|e| Some(e["text"].as_str()?.to_owned())).collect();
        let turns = judged(&plan.workload, call.whole, &committed);
        let errors = Some(record.iter().filter(|e| e["what"] == "error").count());
        if let Some(reason) = record.iter().find(|e| e["what"] == "ended" && !call.held) {
            eprintln!("the server ended conversation {}: {}", call.conversation, reason["reason"]);
        }
        let events = hooks.map(|hooks| {
            let expected = expected(&record);
            let compared = hooks.compare(&call.conversation, expected);
            [expected, compared.missing, compared.out_of_order]
        });
        Judged { call, turns, events, errors }
    });
    futures_util::stream::iter(reading).buffer_unordered(READERS).collect().await
}

/// Number of events in a record that are sent as webhooks.
fn expected(record: &[serde_json::Value]) -> usize {
    record.iter().filter(|e| e["what"].as_str().is_some_and(|what| WEBHOOK_EVENTS.contains(&what))).count()
}

/// The complete record of a call, once its webhooks have arrived. After `until`, the record as it
/// is; `None` if the server is gone.
async fn record(
    callers: &Callers,
    hooks: Option<&Hooks>,
    conversation: &str,
    until: Instant,
) -> Option<Vec<serde_json::Value>> {
    let gives_up = clock::now() + UNREAD;
    loop {
        let events = match callers.api.events(conversation).await {
            Ok(events) => events,
            Err(_) if clock::now() >= gives_up => return None,
            Err(_) => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        let over = events.iter().any(|e| e["what"] == "ended");
        let came = hooks.is_none_or(|hooks| hooks.count(conversation) >= expected(&events));
        if over && came || clock::now() >= until {
            return Some(events);
        }
        tokio::time::sleep(LOOK).await;
    }
}
