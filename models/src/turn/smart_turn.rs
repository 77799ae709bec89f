//! smart-turn v3.2: a Whisper-type encoder over the log-mel features of 8 s, quantized to 8 bits,
//! with one probability as output.
//!
//! An inference takes 60 ms of CPU time, so it runs on threads of its own. They start with the
//! first call that uses the model. A server whose agents do not use it has no cost.

use crate::thread;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::TensorRef;

use super::features::{BUFFER_SAMPLES, FRAMES, MEL_BANDS};
use super::queue::{self, BatchNetwork, QueuedRequest, RequestQueue};
use super::{SAMPLE_RATE, TurnModel, TurnRequest};
use crate::thread_health::ThreadHealth;
use crate::{Error, ErrorKind, Handle, Sink, manifest, onnx_runtime, paths};

/// Maximum duration of a batch. With the default settings, .15 s pass between the VAD's report and
/// the commit. All results of a batch arrive with the last one, so batching must not make the first
/// one late.
const MAX_BATCH_TIME: Duration = Duration::from_millis(130);
/// Maximum number of requests in a batch. Larger batches are not faster.
const MAX_BATCH_REQUESTS: usize = 8;
/// Number of inferences after loading. The first one allocates memory; the fastest of the others is
/// the initial latency.
const WARM_UP_RUNS: usize = 3;

/// Location of the network, and number of worker threads.
#[derive(Clone, Debug)]
pub struct Config {
    /// The models' directory, see [`paths::models_dir`].
    pub dir: PathBuf,
    /// Number of threads, each with a copy of the network. At least one.
    pub threads: usize,
}

/// The network on threads of its own.
pub struct SmartTurn {
    config: Config,
    /// Receiver for the worker threads, until they start.
    receiver: Mutex<Option<Receiver<QueuedRequest>>>,
    requests: RequestQueue,
    health: Arc<ThreadHealth>,
}

impl SmartTurn {
    /// Checks that all files are installed. Loads nothing yet.
    ///
    /// # Errors
    /// One sentence that says what is missing, and what to do.
    pub fn open(config: Config) -> Result<Self, String> {
        check_installed(&config.dir)?;
        let (requests, waiting) = queue::request_queue();
        let health = Arc::new(ThreadHealth::new(config.threads.max(1)));
        Ok(Self { config, receiver: Mutex::new(Some(waiting)), requests, health })
    }

    /// Number of requests that wait for a thread, and the maximum.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        (self.requests.waiting_count(), queue::MAX_QUEUED_REQUESTS)
    }

    /// One sentence about its threads that have failed; `None` if all work.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        self.health.message("threads of the turn model")
    }

    fn start_threads(&self) {
        let waiting = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(waiting) = waiting else { return };
        for n in 0..self.config.threads.max(1) {
            let (dir, waiting) = (self.config.dir.clone(), waiting.clone());
            let health = Arc::downgrade(&self.health);
            let started = thread::spawn_low_priority(format!("model-turn-{n}"), move || {
                let work = |set_working: &dyn Fn()| {
                    let network = LoadedNetwork::load(&dir)?;
                    tracing::info!(latency = ?network.latency, "turn model loaded");
                    set_working();
                    queue::run_worker(network, &waiting);
                    Ok(())
                };
                thread::run_with_health(&health, n, work, std::thread::sleep);
            });
            if let Err(error) = started {
                tracing::error!(%error, "cannot start a thread for the turn model");
                self.health.set_failed(n, &format!("it cannot be started: {error}"));
            }
        }
    }
}

impl TurnModel for SmartTurn {
    fn prepare(&self) -> Result<(), Error> {
        self.start_threads();
        self.health.total_failure().map_or(Ok(()), |reason| {
            Err(Error::new(ErrorKind::NotAvailable, "the turn model has failed")
                .with_source(reason))
        })
    }

    fn max_audio(&self) -> Duration {
        Duration::from_secs((BUFFER_SAMPLES / SAMPLE_RATE as usize) as u64)
    }

    fn predict(&self, question: TurnRequest, answer: Sink<f32>) -> Handle {
        self.requests.push(question, answer)
    }
}

/// Maximum number of requests that one batch can answer in time.
fn max_batch_for(pace: Duration) -> usize {
    let fit = MAX_BATCH_TIME.as_micros() / pace.as_micros().max(1);
    usize::try_from(fit).unwrap_or(MAX_BATCH_REQUESTS).clamp(1, MAX_BATCH_REQUESTS)
}

/// Loads the network and runs it: latency of one request on this machine.
///
/// # Errors
/// One sentence that says what is missing, and what to do.
pub fn measure_latency(dir: &Path) -> Result<Duration, String> {
    check_installed(dir)?;
    LoadedNetwork::load(dir).map(|network| network.latency)
}

fn check_installed(dir: &Path) -> Result<(), String> {
    let runtime = paths::onnx_runtime(dir);
    if !runtime.is_file() {
        return Err(format!(
            "{} is missing (needed by the turn model): run `make setup`",
            runtime.display()
        ));
    }
    manifest::model("smart-turn").check_files(dir)
}

/// A loaded network.
struct LoadedNetwork {
    session: Session,
    /// Current estimate of the latency of one request.
    latency: Duration,
}

impl LoadedNetwork {
    fn load(dir: &Path) -> Result<Self, String> {
        let environment = onnx_runtime::environment(&paths::onnx_runtime(dir))?;
        let weights = paths::turn(dir);
        let session = open_session(&environment, &weights)
            .map_err(|error| format!("cannot load {}: {error}", weights.display()))?;
        let mut network = Self { session, latency: Duration::MAX };
        let (features, mut answer) = (vec![0.0; MEL_BANDS * FRAMES], Vec::new());
        for trial in 0..WARM_UP_RUNS {
            let took = network.run(&features, &mut answer)?;
            if trial > 0 {
                network.latency = network.latency.min(took);
            }
        }
        Ok(network)
    }
}

fn open_session(environment: &Environment, weights: &Path) -> ort::Result<Session> {
    // One thread: the network parallelizes so badly that two threads are slower than one, and the
    // calls need the cores.
    Session::builder(environment)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .commit_from_file(weights)
}

impl LoadedNetwork {
    /// Runs the network. Returns the mean time of one request in the batch.
    fn run(&mut self, features: &[f32], probabilities: &mut Vec<f32>) -> Result<Duration, String> {
        let started = Instant::now();
        let count = features.len() / (MEL_BANDS * FRAMES);
        probabilities.clear();
        let mut run = || -> ort::Result<()> {
            let input = TensorRef::from_array_view(([count, MEL_BANDS, FRAMES], features))?;
            let outputs = self.session.run(ort::inputs!["input_features" => input])?;
            // The output is named "logits" but contains probabilities: the network ends in a
            // sigmoid.
            let (_, values) = outputs[0].try_extract_tensor::<f32>()?;
            probabilities.extend_from_slice(values);
            Ok(())
        };
        run().map_err(|error| error.to_string())?;
        if probabilities.len() == count && probabilities.iter().all(|p| (0.0..=1.0).contains(p)) {
            Ok(started.elapsed() / u32::try_from(count.max(1)).unwrap_or(u32::MAX))
        } else {
            Err(format!("the turn model returned {probabilities:?} for {count} requests"))
        }
    }
}

impl BatchNetwork for LoadedNetwork {
    fn max_batch(&self) -> usize {
        max_batch_for(self.latency)
    }

    fn infer(&mut self, features: &[f32], probabilities: &mut Vec<f32>) -> Result<(), String> {
        let took = self.run(features, probabilities)?;
        // The load of the machine varies, so the latency is a moving average.
        self.latency = (self.latency * 3 + took) / 4;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stderr)] // a skipped test prints the reason

    use super::*;
    use crate::turn::{FeatureExtractor, sound};

    #[test]
    fn a_batch_never_takes_longer_than_a_turn_waits_for_it() {
        let max_batch = |ms| max_batch_for(Duration::from_millis(ms));
        assert_eq!(
            [
                max_batch(0),
                max_batch(12),
                max_batch(40),
                max_batch(63),
                max_batch(70),
                max_batch(500)
            ],
            [8, 8, 3, 2, 1, 1]
        );
    }

    #[test]
    fn a_batch_says_of_each_sound_what_is_said_of_it_alone() {
        let dir = paths::models_dir(None);
        // Tests run in the crate's directory; the set-up runs in the workspace's.
        let dir = if dir.is_relative() { Path::new("..").join(dir) } else { dir };
        if let Err(why) = check_installed(&dir) {
            return eprintln!("LEFT OUT, it proves nothing here: {why}");
        }
        let mut network = LoadedNetwork::load(&dir).unwrap();
        let (sound, mut transform) = (sound::test_signal(), FeatureExtractor::new());
        let mut features = vec![0.0; 4 * MEL_BANDS * FRAMES];
        let parts =
            [&sound[12_800..33_600], &sound[..100_000], &[0; 16_000], &sound[40_000..60_000]];
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for (part, out) in parts.iter().zip(features.chunks_exact_mut(MEL_BANDS * FRAMES)) {
            transform.extract(part, out);
            let mut p = Vec::new();
            network.infer(out, &mut p).unwrap();
            alone.extend(p);
        }
        network.infer(&features, &mut together).unwrap();
        assert!(
            alone.iter().zip(&together).all(|(a, b)| (a - b).abs() < 1e-3),
            "{alone:?} {together:?}"
        );
        assert!(
            alone.windows(2).all(|p| (p[0] - p[1]).abs() > 0.01),
            "they are different: {alone:?}"
        );
    }

    #[test]
    fn a_missing_or_unknown_model_is_reported_with_its_remedy() {
        let dir = std::env::temp_dir().join(format!("visavis-turn-{}", std::process::id()));
        let find = || SmartTurn::open(Config { dir: dir.clone(), threads: 1 }).err().unwrap();
        let put = |path: PathBuf| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "something else").unwrap();
        };
        assert!(
            find().contains("libonnxruntime.so is missing") && find().contains("make setup"),
            "{}",
            find()
        );
        put(paths::onnx_runtime(&dir));
        assert!(
            find().contains("smart-turn-v3.2-cpu.onnx is missing: run `make setup`"),
            "{}",
            find()
        );
        put(paths::turn(&dir));
        assert!(find().contains("its SHA-256 is"), "{}", find());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
