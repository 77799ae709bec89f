//! The promised cost of the adapters of hosted providers: CPU time and added latency of 50 calls.
//! `benches/providers/main.rs` describes the measurement.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the results

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::thread::sched_getaffinity;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hosted-calls");
/// Variable with the folder for the figures.
const RESULTS_FOLDER: &str = "RESULTS_FOLDER";
/// CPU time per call-second, in ms: the adapters alone, and with TLS and resampling.
const CPU_LIMITS: [f64; 2] = [1.0, 2.0];
/// Added latency of a message in each direction, in ms.
const P50_LIMIT: f64 = 2.0;
const P95_LIMIT: f64 = 10.0;
/// A dev build shows only that the measurement works. Its figures are not saved.
const IS_DEV_BUILD: bool = cfg!(debug_assertions);
/// Factor of the limits.
const TOLERANCE: f64 = if IS_DEV_BUILD { 50.0 } else { 1.0 };
/// Number of measurements until one is within the limits. Other programs can only add time.
const MAX_RUNS: usize = 3;

/// The providers of the calls of a run. That of STT may be followed by a blank and a model.
struct Providers {
    stt: &'static str,
    /// `None`: no language model is asked.
    llm: Option<&'static str>,
    tts: &'static str,
    /// With TLS and resampling, or without both.
    modes: &'static [bool],
}

impl Providers {
    /// Whether the voice reports the times of its words.
    fn has_words(&self) -> bool {
        self.llm.is_none() && self.tts != "deepgram"
    }

    /// How the vendors are connected.
    fn transport(&self) -> &'static str {
        if self.llm.is_some() { "requests" } else { "sockets" }
    }

    /// The directions in which latency is limited.
    fn directions(&self) -> &'static [&'static str] {
        match self.llm {
            None => &["stt_out", "stt_in", "tts_out", "tts_in"],
            Some(_) => &["stt_out", "stt_in", "llm_out", "llm_in", "tts_out", "tts_in"],
        }
    }
}

/// The runs: each adapter once. All adapters of a transport share its code, so that only some of
/// them are measured without TLS and resampling too.
const RUNS: [Providers; 9] = [
    sockets("deepgram", "elevenlabs", &[false, true]),
    sockets("assemblyai", "cartesia", &[false, true]),
    sockets("deepgram flux-general-en", "deepgram", &[true]),
    sockets("elevenlabs", "elevenlabs", &[true]),
    sockets("openai gpt-live-transcribe", "cartesia", &[true]),
    requests("openai gpt-transcribe", "openai", "openai", &[false, true]),
    requests("groq", "anthropic", "custom", &[false, true]),
    requests("openai gpt-transcribe", "openai-responses", "openai", &[true]),
    requests("groq", "google", "custom", &[true]),
];

const fn sockets(stt: &'static str, tts: &'static str, modes: &'static [bool]) -> Providers {
    Providers { stt, llm: None, tts, modes }
}

const fn requests(
    stt: &'static str,
    llm: &'static str,
    tts: &'static str,
    modes: &'static [bool],
) -> Providers {
    Providers { stt, llm: Some(llm), tts, modes }
}

/// The fake servers. They end with their standard input.
struct Vendor {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    port: u16,
    transport: &'static str,
    /// The file with the certificate, if the server has TLS.
    certificate: Option<PathBuf>,
}

impl Vendor {
    fn start(cpu: usize, transport: &'static str, tls: bool) -> Self {
        let certificate = tls.then(|| {
            let name = format!("visavis-hosted-calls-{}.pem", std::process::id());
            std::env::temp_dir().join(name)
        });
        let mut process = Command::new(PROGRAM)
            .args(["vendor", &cpu.to_string(), transport])
            .args(&certificate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        let port = port.trim().parse().expect("the server prints its port");
        Self { process, input, output, port, transport, certificate }
    }

    fn url(&self) -> String {
        let secure = if self.certificate.is_some() { "s" } else { "" };
        match self.transport {
            "requests" => format!("http{secure}://127.0.0.1:{}/v1", self.port),
            _ => format!("ws{secure}://127.0.0.1:{}", self.port),
        }
    }

    /// The latencies of messages that were written between two times.
    fn latencies(&mut self, from: &Value, to: &Value) -> Value {
        writeln!(self.input, "{from} {to}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        // Both fail only if it is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(certificate) = &self.certificate {
            let _ = std::fs::remove_file(certificate);
        }
    }
}

/// The first and the last CPU of this process.
fn cpus() -> (usize, usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let all: Vec<usize> = (0..1_024).filter(|n| allowed.is_set(*n)).collect();
    (all[0], all[all.len() - 1])
}

/// Runs the calls once, and returns their figures. `complete`: with TLS and resampling.
fn measure(providers: &Providers, complete: bool) -> Value {
    let &Providers { stt, llm, tts, .. } = providers;
    let (calls_cpu, vendor_cpu) = cpus();
    let mut vendor = Vendor::start(vendor_cpu, providers.transport(), complete);
    let mut command = Command::new(PROGRAM);
    command.args(["calls", &calls_cpu.to_string(), &vendor.url()]);
    command.args([stt, llm.unwrap_or("none"), tts]);
    if complete {
        command.arg("resampled");
    }
    if let Some(certificate) = &vendor.certificate {
        // The usual variable of the system's CA certificates.
        command.env("SSL_CERT_FILE", certificate);
    }
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let mut figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let latencies = vendor.latencies(&figures["from"], &figures["to"]);
    for (name, summary) in latencies.as_object().unwrap() {
        figures["ms"][name] = summary.clone();
    }
    // What this transport does not have.
    figures["ms"].as_object_mut().unwrap().retain(|_, summary| summary["n"] != 0);
    let names = json!({"stt": stt, "llm": llm, "tts": tts, "tls": complete, "resampled": complete});
    let mut run = names.as_object().unwrap().clone();
    run.extend(figures.as_object().unwrap().clone());
    run.into()
}

/// Checks that the calls ran as they should: otherwise their figures mean nothing.
fn check_counts(providers: &Providers, run: &Value) {
    let count = |name: &str| run["counts"][name].as_u64().unwrap();
    assert_eq!(count("failures"), 0, "{run}");
    // 40 s of 50 calls with one utterance and two segments in 10 s, and the warm-up.
    assert!(count("utterances") >= 200 && count("segments") >= 400, "{run}");
    // What is under way at the end is not complete: a third of the calls are in an utterance.
    assert!(count("finals") + 20 >= count("utterances"), "{run}");
    assert!(count("ended_segments") + 20 >= count("segments"), "{run}");
    if providers.has_words() {
        assert!(count("words") >= 5 * count("ended_segments"), "{run}");
    }
    if providers.llm.is_some() {
        assert!(count("questions") >= 200, "{run}");
        assert!(count("ended_answers") + 20 >= count("questions"), "{run}");
        assert!(count("tokens") >= 40 * count("ended_answers"), "{run}");
    }
    // 2 s at 24 kHz; resampled twice that.
    assert!(count("samples") >= 48_000 * count("ended_segments"), "{run}");
    if run["resampled"] == true {
        assert!(count("resampled") >= 95_000 * count("ended_segments"), "{run}");
    }
    for (name, summary) in run["ms"].as_object().unwrap() {
        assert_eq!(summary["invalid"], 0, "{name}: {run}");
    }
    // By requests, one of each direction in 10 s of a call: at least 190, up to those at the ends.
    for name in providers.directions() {
        assert!(run["ms"][name]["n"].as_u64().unwrap_or(0) >= 190, "{name}: {run}");
    }
}

/// The figures of a run that exceed their limits.
fn exceeded(providers: &Providers, run: &Value) -> Vec<String> {
    let cpu_limit = CPU_LIMITS[usize::from(run["tls"] == true)];
    let percentiles = providers.directions().iter().flat_map(|name| {
        let of = move |percentile, limit| (format!("{name} {percentile}"), limit, percentile);
        [of("p50", P50_LIMIT), of("p95", P95_LIMIT)]
            .map(|(label, limit, percentile)| (label, &run["ms"][*name][percentile], limit))
    });
    let cpu = ("CPU".to_owned(), &run["cpu_ms_per_call_second"]["sum"], cpu_limit);
    let all = percentiles.chain([cpu]);
    all.filter(|(_, figure, limit)| figure.as_f64().unwrap() > *limit * TOLERANCE)
        .map(|(label, figure, limit)| format!("{label}: {figure} ms, the limit is {limit} ms"))
        .collect()
}

/// The first line that a command prints; empty if it fails.
fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("", |(_, name)| name).to_owned()
}

/// Writes the figures for the table in `docs/performance.md`.
fn save(folder: &Path, runs: &[Value]) {
    let report = json!({
        "mode": "providers",
        "limits": {"cpu": CPU_LIMITS, "p50": P50_LIMIT, "p95": P95_LIMIT},
        "runs": runs,
        "commit": first_line(Command::new("git").args(["rev-parse", "--short", "HEAD"])),
        "cpu_model": cpu_model(),
    });
    let text = serde_json::to_string_pretty(&report).unwrap();
    std::fs::write(folder.join("providers.json"), text + "\n").unwrap();
}

#[test]
#[ignore = "long: providers"]
fn long_providers_hosted_adapters_cost_little_cpu_time_and_latency() {
    let mut runs = Vec::new();
    let mut all_exceeded = Vec::new();
    for providers in &RUNS {
        for &complete in providers.modes {
            let mut attempts = 0;
            let (run, exceeded) = loop {
                attempts += 1;
                let run = measure(providers, complete);
                eprintln!("{run}");
                check_counts(providers, &run);
                let exceeded = exceeded(providers, &run);
                if exceeded.is_empty() || attempts == MAX_RUNS {
                    break (run, exceeded);
                }
                eprintln!("measured again: {exceeded:?}");
            };
            runs.push(run);
            all_exceeded.extend(exceeded);
        }
    }
    if !IS_DEV_BUILD && let Some(folder) = std::env::var_os(RESULTS_FOLDER) {
        save(Path::new(&folder), &runs);
    }
    assert!(all_exceeded.is_empty(), "{all_exceeded:#?}");
}
