//! The command line, and what it means.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use url::Url;

use crate::Error;
use crate::caller::Pace;
use crate::machine::Cpus;
use crate::report::Asked;
use crate::require::Requirement;
use crate::stats::round;
use crate::workload::Workload;

/// The command line of `visavis-load`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The server to call, as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A key of its API; else VISAVIS_API_KEY
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Callers
    #[arg(long, value_name = "N", default_value = "10")]
    calls: usize,
    /// Calls that begin in a second; else so many that they spread over one round of the recording, at least 5
    #[arg(long, value_name = "R/s")]
    ramp: Option<String>,
    /// Seconds that all calls run
    #[arg(long, value_name = "S", default_value = "45")]
    duration: f64,
    /// What the callers say: WAV, 16 kHz, mono, 16 bits; else the built-in recording
    #[arg(long, value_name = "FILE")]
    speech: Option<PathBuf>,
    /// What the recording holds, and the script of the models: JSON; else the built-in one
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Call this agent
    #[arg(long, value_name = "ID", conflicts_with = "scripted")]
    agent: Option<String>,
    /// Make an agent of scripted models, which follow the workload; the server must run with --allow-scripted
    #[arg(long)]
    scripted: bool,
    /// Hang up after a random part of S and call again, all the while
    #[arg(long, value_name = "S")]
    cycle: Option<f64>,
    /// Seed of what --cycle and --jitter draw, which the report names; else another one each time
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Packets of the microphone that leave together, as on Wi-Fi and mobile networks
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "engine_only")]
    burst: u32,
    /// Each packet of the microphone is late by a random part of MS before it joins its burst; over 20, some overtake others
    #[arg(long, value_name = "MS", default_value = "0", conflicts_with = "engine_only")]
    jitter: u32,
    /// Open a data channel too, as pages do
    #[arg(long)]
    channel: bool,
    /// Token of the server's /metrics, where it wants one
    #[arg(long, value_name = "TOKEN")]
    metrics_token: Option<String>,
    /// No network, no codec, no face: the calls run in an engine of this process
    #[arg(long, conflicts_with_all = ["server", "key", "agent", "scripted", "channel", "cycle", "seed", "metrics_token"])]
    engine_only: bool,
    /// Media threads of that engine
    #[arg(long, value_name = "N", default_value = "1", requires = "engine_only")]
    threads: usize,
    /// Processors of the callers, as 0,2-3
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
    /// Processors of that engine; else those that the callers leave
    #[arg(long, value_name = "LIST", requires = "engine_only")]
    engine_cpu: Option<String>,
    /// Write what was found to this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fail unless this holds, as "p95(voice_to_voice) < 1.2s"; may be given several times
    #[arg(long, value_name = "LIMIT")]
    require: Vec<String>,
}

/// Which agent the callers call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// One that the server has.
    Own(String),
    /// One of scripted models, made for the run.
    Scripted,
}

/// The server to call.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) key: String,
    pub(crate) metrics_token: Option<String>,
    pub(crate) agent: Agent,
    pub(crate) channel: bool,
    /// How the packets of the microphone leave.
    pub(crate) pace: Pace,
    /// Calls are hung up at random moments within this time, and begun anew.
    pub(crate) cycle: Option<Duration>,
    /// Seed of these moments, and of how late packets are.
    pub(crate) seed: u32,
}

impl Target {
    /// Whether anything depends on the seed.
    fn draws(&self) -> bool {
        self.cycle.is_some() || !self.pace.jitter.is_zero()
    }

    /// Whether it is this machine by its loopback address.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(url::Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
            Some(url::Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }
}

/// Where the calls go.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// To a server, by WebRTC.
    Network(Target),
    /// To an engine of this process.
    Engine { threads: usize, cpus: Option<Cpus> },
}

/// A run, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) calls: usize,
    /// Calls a second.
    pub(crate) ramp: f64,
    pub(crate) duration: Duration,
    pub(crate) workload: Arc<Workload>,
    pub(crate) cpus: Option<Cpus>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) requirements: Vec<Requirement>,
}

/// Calls a second that a few calls begin with, where nothing is said.
const LEAST_RAMP: f64 = 5.0;
/// The longest run, in s.
const LONGEST: f64 = 7.0 * 86_400.0;
/// Packets that may leave together: a second of sound.
const MOST_BURST: u32 = 50;
/// Most that a packet may be late, in ms.
const MOST_JITTER: u32 = 1_000;
/// Ports and memory of one machine end before.
const MOST_CALLS: usize = 20_000;

impl Plan {
    pub(crate) fn asked(&self) -> Asked {
        let target = match &self.kind {
            Kind::Network(target) => Some(target),
            Kind::Engine { .. } => None,
        };
        Asked {
            calls: self.calls,
            ramp: round(self.ramp, 3),
            duration: self.duration.as_secs_f64(),
            cycle: target.and_then(|target| target.cycle).map(|cycle| cycle.as_secs_f64()),
            burst: target.map(|target| target.pace.burst),
            jitter: target.map(|target| target.pace.jitter.as_millis() as u32),
            seed: target.filter(|target| target.draws()).map(|target| target.seed),
        }
    }
}

impl Args {
    /// Checks all of it before anything begins.
    pub(crate) fn plan(self) -> Result<Plan, Error> {
        let usage = |why: String| Error::Usage(why);
        let requirements = self
            .require
            .iter()
            .map(|r| r.parse::<Requirement>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(usage)?;
        let cpus = |list: &Option<String>| list.as_deref().map(str::parse::<Cpus>).transpose().map_err(usage);
        if !(1..=MOST_CALLS).contains(&self.calls) {
            return Err(usage(format!("--calls must be between 1 and {MOST_CALLS}")));
        }
        let workload = self.workload()?;
        let ramp = match &self.ramp {
            // Callers who all say the same at once would all be answered at once: a load that no server has.
            None => Some((self.calls as f64 / workload.period()).max(LEAST_RAMP)),
            Some(given) => {
                given.trim_end_matches("/s").parse().ok().filter(|r| (0.01..=10_000.0).contains(r))
            }
        };
        let ramp = ramp.ok_or_else(|| usage("--ramp must be calls a second, as 5 or 5/s".into()))?;
        let span = |name: &str, seconds: f64, least: f64| {
            let right = (least..=LONGEST).contains(&seconds);
            let refused = || usage(format!("{name} must be between {least} and {LONGEST} seconds"));
            right.then(|| Duration::from_secs_f64(seconds)).ok_or_else(refused)
        };
        let kind = if self.engine_only {
            if !(1..=64).contains(&self.threads) {
                return Err(usage("--threads must be between 1 and 64".into()));
            }
            Kind::Engine { threads: self.threads, cpus: cpus(&self.engine_cpu)? }
        } else {
            let Some(server) = &self.server else {
                return Err(usage("missing --server <URL>, or --engine-only".into()));
            };
            let url =
                Url::parse(server).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
            let url = url.ok_or_else(|| {
                usage(format!("--server \"{server}\" is no address like http://127.0.0.1:8080"))
            })?;
            // All paths of the API are absolute, those in its own answers too.
            if url.path() != "/" || url.query().is_some() {
                return Err(usage(format!("--server \"{server}\" must be an address without a path")));
            }
            let given = self.key.clone().or_else(|| std::env::var("VISAVIS_API_KEY").ok());
            let key = given
                .filter(|key| !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic()))
                .ok_or_else(|| usage("missing --key <KEY>".into()))?;
            let agent = match (&self.agent, self.scripted) {
                (Some(id), _) => Agent::Own(id.clone()),
                (None, true) => Agent::Scripted,
                (None, false) => return Err(usage("missing --agent <ID>, or --scripted".into())),
            };
            if !(1..=MOST_BURST).contains(&self.burst) {
                return Err(usage(format!("--burst must be between 1 and {MOST_BURST}")));
            }
            if self.jitter > MOST_JITTER {
                return Err(usage(format!("--jitter must be at most {MOST_JITTER} ms")));
            }
            let cycle = self.cycle.map(|cycle| span("--cycle", cycle, 1.0)).transpose()?;
            if self.seed.is_some() && cycle.is_none() && self.jitter == 0 {
                return Err(usage("--seed belongs to --cycle or --jitter: nothing else is drawn".into()));
            }
            Kind::Network(Target {
                url,
                key,
                metrics_token: self.metrics_token.clone(),
                agent,
                channel: self.channel,
                pace: Pace { burst: self.burst, jitter: Duration::from_millis(self.jitter.into()) },
                cycle,
                seed: self.seed.unwrap_or_else(rand::random),
            })
        };
        // An hour's result is not to be lost to a folder that is not there.
        if let Some(out) = &self.out {
            std::fs::File::options()
                .create(true)
                .append(true)
                .open(out)
                .map_err(|e| Error::Usage(format!("--out {}: {e}", out.display())))?;
        }
        Ok(Plan {
            kind,
            calls: self.calls,
            ramp,
            duration: span("--duration", self.duration, 1.0)?,
            workload: Arc::new(workload),
            cpus: cpus(&self.cpu)?,
            out: self.out,
            requirements,
        })
    }

    fn workload(&self) -> Result<Workload, Error> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
        };
        let read = match (&self.workload, &self.speech) {
            (None, None) => Workload::built_in(),
            (Some(workload), Some(speech)) => {
                let json = String::from_utf8(read(workload)?);
                let json = json.map_err(|_| Error::Usage(format!("{}: is not text", workload.display())))?;
                Workload::parse(&json, &read(speech)?)
            }
            _ => Err("--workload and --speech belong together: one tells what the other holds".into()),
        };
        read.map_err(Error::Usage)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let command = Args::augment_args(Command::new("load").no_binary_name(true));
        let matches = command
            .try_get_matches_from(line.split(' ').filter(|w| !w.is_empty()))
            .map_err(|e| e.to_string())?;
        let args = Args::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        args.plan().map_err(|e| e.to_string())
    }

    #[test]
    fn a_run_is_checked_before_it_begins() {
        let whole =
            plan("--server http://127.0.0.1:8080 --key k --scripted --calls 3 --ramp 2/s --cpu 0").unwrap();
        assert_eq!((whole.calls, whole.ramp, &whole.cpus), (3, 2.0, &Some(Cpus(vec![0]))));
        let asked = whole.asked();
        assert_eq!((asked.calls, asked.ramp, asked.duration, asked.cycle), (3, 2.0, 45.0, None));
        assert!(matches!(whole.kind, Kind::Network(t) if t.is_loopback() && t.agent == Agent::Scripted));
        let soak = "--server http://h --key k --scripted --cycle 6";
        assert_eq!(plan(&format!("{soak} --seed 7")).unwrap().asked().seed, Some(7));
        assert!(plan(soak).unwrap().asked().seed.is_some(), "a drawn seed is in the report");
        let uneven = plan("--server http://h --key k --scripted --burst 3 --jitter 60 --seed 7").unwrap();
        let uneven = uneven.asked();
        assert_eq!((uneven.burst, uneven.jitter, uneven.seed), (Some(3), Some(60), Some(7)));
        assert_eq!((asked.burst, asked.jitter, asked.seed), (Some(1), Some(0), None));
        let alone = plan("--engine-only").unwrap().asked();
        assert_eq!((alone.burst, alone.jitter, alone.seed), (None, None, None));
        assert!(matches!(plan("--engine-only --calls 5").unwrap().kind, Kind::Engine { threads: 1, .. }));
        let server = "--server http://h --key k --scripted";
        for (line, why) in [
            ("", "missing --server <URL>, or --engine-only"),
            ("--server here --key k --scripted", "is no address like"),
            ("--server http://h/prefix/ --key k", "must be an address without a path"),
            ("--server http://h --key k", "missing --agent <ID>, or --scripted"),
            (&format!("{server} --calls 0"), "--calls must be between 1 and"),
            (&format!("{server} --ramp fast"), "--ramp must be calls a second"),
            (&format!("{server} --ramp 0"), "--ramp must be calls a second"),
            (&format!("{server} --duration 0"), "--duration must be between 1 and"),
            (&format!("{server} --cycle 0.5"), "--cycle must be between 1 and"),
            (&format!("{server} --seed 1"), "--seed belongs to --cycle or --jitter"),
            (&format!("{server} --burst 0"), "--burst must be between 1 and"),
            (&format!("{server} --jitter 1001"), "--jitter must be at most 1000 ms"),
            (&format!("{server} --cpu x"), "is no list of processors"),
            (&format!("{server} --require nonsense"), "--require \"nonsense\": has none of"),
            (&format!("{server} --speech a.wav"), "--workload and --speech belong together"),
            (&format!("{server} --speech /none --workload /none"), "/none: No such file"),
            (&format!("{server} --agent a"), "cannot be used with"),
            ("--engine-only --threads 0", "--threads must be between 1 and 64"),
            ("--engine-only --scripted", "cannot be used with"),
            ("--engine-only --jitter 60", "cannot be used with"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
