//! The command line and its validation.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use url::Url;

use crate::Error;
use crate::machine::CpuList;
use crate::pacing::Pacing;
use crate::recording::RecordedChannels;
use crate::report::RunSettings;
use crate::requirement::Requirement;
use crate::stats::round_to;
use crate::workload::Workload;

/// The command line of `visavis-load`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// URL of the server to call, e.g. http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// API key [default: VISAVIS_API_KEY]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Number of concurrent calls
    #[arg(long, value_name = "N", default_value = "10")]
    calls: usize,
    /// Calls started per second [default: spread over one round of the recording, at least 5]
    #[arg(long, value_name = "R/s")]
    ramp: Option<String>,
    /// Seconds that all calls run concurrently
    #[arg(long, value_name = "S", default_value = "45")]
    duration: f64,
    /// Speech of the callers: WAV, 16 kHz, mono, 16 bits [default: the built-in recording]
    #[arg(long, value_name = "FILE")]
    speech: Option<PathBuf>,
    /// Description of the recording and the script of the models, JSON [default: the built-in
    /// workload]
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Id of the agent to call
    #[arg(long, value_name = "ID", conflicts_with = "scripted")]
    agent: Option<String>,
    /// Create an agent with scripted models that follow the workload; the server must run with
    /// --allow-scripted
    #[arg(long)]
    scripted: bool,
    /// Record the calls, and report what that costs the server; the recordings stay there
    #[arg(
        long,
        value_name = "CHANNELS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mixed"
    )]
    record: Option<RecordedChannels>,
    /// Repeatedly hang up after a random time of up to S seconds and call again
    #[arg(long, value_name = "S")]
    cycle: Option<f64>,
    /// Random seed for --cycle and --jitter; it is in the report [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Microphone packets sent per burst, as on Wi-Fi and mobile networks
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "engine_only")]
    burst: u32,
    /// Delay each microphone packet by a random time of up to MS before its burst; values over 20
    /// reorder packets
    #[arg(long, value_name = "MS", default_value = "0", conflicts_with = "engine_only")]
    jitter: u32,
    /// Also open a data channel, as the web pages do
    #[arg(long)]
    channel: bool,
    /// Token for the server's /metrics endpoint
    #[arg(long, value_name = "TOKEN")]
    metrics_token: Option<String>,
    /// Run the calls in an in-process engine, without network, codecs or video
    #[arg(
        long,
        conflicts_with_all = [
            "server", "key", "agent", "scripted", "channel", "record", "cycle", "seed",
            "metrics_token"
        ]
    )]
    engine_only: bool,
    /// Media threads of the in-process engine
    #[arg(long, value_name = "N", default_value = "1", requires = "engine_only")]
    threads: usize,
    /// CPUs for the callers, e.g. 0,2-3
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
    /// CPUs for the in-process engine [default: those not used by the callers]
    #[arg(long, value_name = "LIST", requires = "engine_only")]
    engine_cpu: Option<String>,
    /// Write the report to this file as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fail unless this condition holds, e.g. "p95(voice_to_voice) < 1.2s"; can be repeated
    #[arg(long, value_name = "LIMIT")]
    require: Vec<String>,
}

/// The agent that the callers call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// An existing agent of the server, by its id.
    Existing(String),
    /// An agent with scripted models, created for the run.
    Scripted,
}

/// The server to call.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) key: String,
    pub(crate) metrics_token: Option<String>,
    pub(crate) agent: Agent,
    pub(crate) data_channel: bool,
    /// When the microphone packets are sent.
    pub(crate) pacing: Pacing,
    /// The channels of the calls' recordings; `None` = the calls are not recorded.
    pub(crate) record: Option<RecordedChannels>,
    /// Each call is hung up at a random time within this duration, and a new one starts.
    pub(crate) cycle: Option<Duration>,
    /// Seed of these times and of the packet delays.
    pub(crate) seed: u32,
}

impl Target {
    /// Whether anything depends on the seed.
    fn uses_seed(&self) -> bool {
        self.cycle.is_some() || !self.pacing.jitter.is_zero()
    }

    /// Whether the URL is a loopback address of this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(url::Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
            Some(url::Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }
}

/// The destination of the calls.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// A server, over WebRTC.
    Network(Target),
    /// An engine in this process.
    Engine { threads: usize, cpus: Option<CpuList> },
}

/// A validated run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    pub(crate) calls: usize,
    /// Calls per second.
    pub(crate) ramp: f64,
    pub(crate) duration: Duration,
    pub(crate) workload: Arc<Workload>,
    pub(crate) cpus: Option<CpuList>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) requirements: Vec<Requirement>,
}

/// Minimum of the default ramp, in calls per second.
const MIN_RAMP: f64 = 5.0;
/// Maximum duration of a run, in s.
const MAX_DURATION: f64 = 7.0 * 86_400.0;
/// Maximum number of packets in a burst: one second of audio.
const MAX_BURST: u32 = 50;
/// Maximum delay of a packet, in ms.
const MAX_JITTER: u32 = 1_000;
/// The ports and memory of one machine do not suffice for more.
const MAX_CALLS: usize = 20_000;

impl Plan {
    pub(crate) fn run_settings(&self) -> RunSettings {
        let target = match &self.mode {
            Mode::Network(target) => Some(target),
            Mode::Engine { .. } => None,
        };
        RunSettings {
            calls: self.calls,
            ramp: round_to(self.ramp, 3),
            duration: self.duration.as_secs_f64(),
            cycle: target.and_then(|target| target.cycle).map(|cycle| cycle.as_secs_f64()),
            burst: target.map(|target| target.pacing.burst),
            jitter: target.map(|target| target.pacing.jitter.as_millis() as u32),
            seed: target.filter(|target| target.uses_seed()).map(|target| target.seed),
            record: target.and_then(|target| target.record),
        }
    }
}

impl Args {
    /// Validates everything before the run starts.
    pub(crate) fn into_plan(self) -> Result<Plan, Error> {
        let usage = |why: String| Error::Usage(why);
        let requirements = self
            .require
            .iter()
            .map(|r| r.parse::<Requirement>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(usage)?;
        let cpus = |list: &Option<String>| {
            list.as_deref().map(str::parse::<CpuList>).transpose().map_err(usage)
        };
        if !(1..=MAX_CALLS).contains(&self.calls) {
            return Err(usage(format!("--calls must be between 1 and {MAX_CALLS}")));
        }
        let workload = self.load_workload()?;
        let ramp = match &self.ramp {
            // If all callers spoke at the same time, all replies would coincide: no real server has
            // that load.
            None => Some((self.calls as f64 / workload.round_duration()).max(MIN_RAMP)),
            Some(key_text) => key_text
                .trim_end_matches("/s")
                .parse()
                .ok()
                .filter(|r| (0.01..=10_000.0).contains(r)),
        };
        let ramp =
            ramp.ok_or_else(|| usage("--ramp must be calls per second, e.g. 5 or 5/s".into()))?;
        let checked_duration = |name: &str, seconds: f64, min: f64| {
            let right = (min..=MAX_DURATION).contains(&seconds);
            let refused =
                || usage(format!("{name} must be between {min} and {MAX_DURATION} seconds"));
            right.then(|| Duration::from_secs_f64(seconds)).ok_or_else(refused)
        };
        let kind = if self.engine_only {
            if !(1..=64).contains(&self.threads) {
                return Err(usage("--threads must be between 1 and 64".into()));
            }
            Mode::Engine { threads: self.threads, cpus: cpus(&self.engine_cpu)? }
        } else {
            let Some(server) = &self.server else {
                return Err(usage("missing --server <URL>, or --engine-only".into()));
            };
            let url = Url::parse(server)
                .ok()
                .filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
            let url = url.ok_or_else(|| {
                usage(format!("--server \"{server}\" is not a URL like http://127.0.0.1:8080"))
            })?;
            // All paths of the API are absolute, also those in its responses.
            if url.path() != "/" || url.query().is_some() {
                return Err(usage(format!("--server \"{server}\" must be a URL without a path")));
            }
            let key_text = self.key.clone().or_else(|| std::env::var("VISAVIS_API_KEY").ok());
            let key = key_text
                .filter(|key| !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic()))
                .ok_or_else(|| usage("missing --key <KEY>".into()))?;
            let agent = match (&self.agent, self.scripted) {
                (Some(id), _) => Agent::Existing(id.clone()),
                (None, true) => Agent::Scripted,
                (None, false) => return Err(usage("missing --agent <ID>, or --scripted".into())),
            };
            if self.record.is_some() && agent != Agent::Scripted {
                return Err(usage("--record requires --scripted".into()));
            }
            if !(1..=MAX_BURST).contains(&self.burst) {
                return Err(usage(format!("--burst must be between 1 and {MAX_BURST}")));
            }
            if self.jitter > MAX_JITTER {
                return Err(usage(format!("--jitter must be at most {MAX_JITTER} ms")));
            }
            let cycle =
                self.cycle.map(|cycle| checked_duration("--cycle", cycle, 1.0)).transpose()?;
            if self.seed.is_some() && cycle.is_none() && self.jitter == 0 {
                return Err(usage(
                    "--seed requires --cycle or --jitter: nothing else is random".into(),
                ));
            }
            Mode::Network(Target {
                url,
                key,
                metrics_token: self.metrics_token.clone(),
                agent,
                data_channel: self.channel,
                pacing: Pacing {
                    burst: self.burst,
                    jitter: Duration::from_millis(self.jitter.into()),
                },
                record: self.record,
                cycle,
                seed: self.seed.unwrap_or_else(rand::random),
            })
        };
        // Fail now if the file cannot be written, not after the run.
        if let Some(out) = &self.out {
            std::fs::File::options()
                .create(true)
                .append(true)
                .open(out)
                .map_err(|e| Error::Usage(format!("--out {}: {e}", out.display())))?;
        }
        Ok(Plan {
            mode: kind,
            calls: self.calls,
            ramp,
            duration: checked_duration("--duration", self.duration, 1.0)?,
            workload: Arc::new(workload),
            cpus: cpus(&self.cpu)?,
            out: self.out,
            requirements,
        })
    }

    fn load_workload(&self) -> Result<Workload, Error> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
        };
        let read =
            match (&self.workload, &self.speech) {
                (None, None) => Workload::built_in(),
                (Some(workload), Some(speech)) => {
                    let json = String::from_utf8(read(workload)?);
                    let json = json.map_err(|_| {
                        Error::Usage(format!("{}: is not UTF-8 text", workload.display()))
                    })?;
                    Workload::parse(&json, &read(speech)?)
                }
                _ => Err("--workload and --speech must be given together: one describes the other"
                    .into()),
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
        args.into_plan().map_err(|e| e.to_string())
    }

    #[test]
    fn a_run_is_checked_before_it_begins() {
        let whole =
            plan("--server http://127.0.0.1:8080 --key k --scripted --calls 3 --ramp 2/s --cpu 0")
                .unwrap();
        assert_eq!((whole.calls, whole.ramp, &whole.cpus), (3, 2.0, &Some(CpuList(vec![0]))));
        let settings = whole.run_settings();
        assert_eq!(
            (settings.calls, settings.ramp, settings.duration, settings.cycle),
            (3, 2.0, 45.0, None)
        );
        assert!(
            matches!(whole.mode, Mode::Network(t) if t.is_loopback() && t.agent == Agent::Scripted)
        );
        let soak = "--server http://h --key k --scripted --cycle 6";
        assert_eq!(plan(&format!("{soak} --seed 7")).unwrap().run_settings().seed, Some(7));
        assert!(plan(soak).unwrap().run_settings().seed.is_some(), "a drawn seed is in the report");
        let uneven =
            plan("--server http://h --key k --scripted --burst 3 --jitter 60 --seed 7").unwrap();
        let uneven = uneven.run_settings();
        assert_eq!((uneven.burst, uneven.jitter, uneven.seed), (Some(3), Some(60), Some(7)));
        assert_eq!((settings.burst, settings.jitter, settings.seed), (Some(1), Some(0), None));
        let soak = plan(&format!("{soak} --record=split")).unwrap().run_settings();
        assert_eq!((soak.record, settings.record), (Some(RecordedChannels::Split), None));
        let mixed = plan("--server http://h --key k --record --scripted").unwrap().run_settings();
        assert_eq!(mixed.record, Some(RecordedChannels::Mixed));
        let alone = plan("--engine-only").unwrap().run_settings();
        assert_eq!((alone.burst, alone.jitter, alone.seed), (None, None, None));
        assert!(matches!(
            plan("--engine-only --calls 5").unwrap().mode,
            Mode::Engine { threads: 1, .. }
        ));
        let server = "--server http://h --key k --scripted";
        for (line, why) in [
            ("", "missing --server <URL>, or --engine-only"),
            ("--server here --key k --scripted", "is not a URL like"),
            ("--server http://h/prefix/ --key k", "must be a URL without a path"),
            ("--server http://h --key k", "missing --agent <ID>, or --scripted"),
            (&format!("{server} --calls 0"), "--calls must be between 1 and"),
            (&format!("{server} --ramp fast"), "--ramp must be calls per second"),
            (&format!("{server} --ramp 0"), "--ramp must be calls per second"),
            (&format!("{server} --duration 0"), "--duration must be between 1 and"),
            (&format!("{server} --cycle 0.5"), "--cycle must be between 1 and"),
            (&format!("{server} --seed 1"), "--seed requires --cycle or --jitter"),
            (&format!("{server} --burst 0"), "--burst must be between 1 and"),
            (&format!("{server} --jitter 1001"), "--jitter must be at most 1000 ms"),
            (&format!("{server} --cpu x"), "is not a CPU list"),
            (&format!("{server} --require nonsense"), "--require \"nonsense\": has none of"),
            (&format!("{server} --speech a.wav"), "--workload and --speech must be given together"),
            (&format!("{server} --speech /none --workload /none"), "/none: No such file"),
            (&format!("{server} --agent a"), "cannot be used with"),
            ("--engine-only --threads 0", "--threads must be between 1 and 64"),
            ("--engine-only --scripted", "cannot be used with"),
            ("--engine-only --jitter 60", "cannot be used with"),
            ("--engine-only --record", "cannot be used with"),
            ("--server http://h --key k --agent a --record", "--record requires --scripted"),
            (&format!("{server} --record=stereo"), "invalid value 'stereo'"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
