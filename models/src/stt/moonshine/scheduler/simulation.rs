//! Users and workers of the scheduler in virtual time.
//!
//! The decoder reads what the test wrote into the samples. A word is a tone of .3 s whose amplitude
//! is its number. A decode takes a given share of its audio. Samples arrive in frames of 20 ms, and
//! the detector reports the end of speech .25 s late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::stt::moonshine::SAMPLE_RATE;

const FRAME: usize = SAMPLE_RATE / 50;
pub(super) const FRAME_TIME: Duration = Duration::from_millis(20);
const WORD: usize = SAMPLE_RATE * 3 / 10;
/// Amplitude of word number 0.
const BASE: i16 = 8_000;
const PRE_ROLL: usize = SAMPLE_RATE / 2;
/// Silence that the detector needs to report the end of speech.
const DETECTOR_SILENCE: usize = SAMPLE_RATE / 4;

/// Word numbers `words`, with a pause of `gap_ms` after each.
pub(super) fn words(numbers: std::ops::Range<i16>, gap_ms: usize) -> Vec<i16> {
    let mut pcm = Vec::new();
    for number in numbers {
        let amplitude = BASE + number;
        pcm.extend((0..WORD).map(|n| if n % 8 < 4 { amplitude } else { -amplitude }));
        pcm.resize(pcm.len() + gap_ms * SAMPLE_RATE / 1000, 0);
    }
    pcm
}

/// The text of word numbers `words`.
pub(super) fn text(numbers: std::ops::Range<i16>) -> String {
    numbers.map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ")
}

/// What the decoder hears: each word of which at least half is there.
fn hear(pcm: &[i16]) -> String {
    let mut lengths = BTreeMap::<usize, (i16, usize)>::new();
    let mut start = 0;
    for (at, sample) in pcm.iter().enumerate() {
        let amplitude = sample.saturating_abs();
        if amplitude < BASE {
            continue;
        }
        if lengths.get(&start).is_none_or(|(word, _)| *word != amplitude) {
            start = at;
        }
        lengths.entry(start).or_insert((amplitude, 0)).1 += 1;
    }
    let heard = lengths.values().filter(|(_, length)| *length >= WORD / 2);
    heard.map(|(word, _)| format!("w{}", word - BASE)).collect::<Vec<_>>().join(" ")
}

/// A user of one stream.
#[derive(Default)]
pub(super) struct User {
    /// Samples to come, or `None` at the end of a speech.
    sound: Vec<i16>,
    sent: usize,
    in_speech: bool,
    /// The last speech ended at this time.
    true_end: Duration,
}

pub(super) struct Sim {
    pub(super) scheduler: Scheduler,
    pub(super) counters: Arc<Counters>,
    pub(super) now: Duration,
    /// Decode time per audio time.
    cost: f64,
    pub(super) users: BTreeMap<u64, User>,
    /// Jobs with the time of their end.
    pub(super) jobs: Vec<(Duration, usize, Job, Duration)>,
    events: Arc<Mutex<Vec<(u64, String)>>>,
    /// Events with their time.
    pub(super) log: Vec<(Duration, u64, String)>,
    /// Number of further jobs that fail.
    pub(super) failing: usize,
    /// Mean log probability of transcripts that are not decoded carefully.
    pub(super) careless: f32,
}

impl Sim {
    pub(super) fn new(workers: usize, cost: f64) -> Self {
        let counters = Arc::<Counters>::default();
        let mut sim = Self {
            scheduler: Scheduler::new(workers, Arc::clone(&counters)),
            counters,
            now: Duration::ZERO,
            cost,
            users: BTreeMap::new(),
            jobs: Vec::new(),
            events: Arc::default(),
            log: Vec::new(),
            failing: 0,
            careless: -0.1,
        };
        (0..workers).for_each(|worker| sim.handle(Command::WorkerReady(worker)));
        sim
    }

    pub(super) fn open(&mut self, id: u64) {
        let events = Arc::clone(&self.events);
        let sink = Sink::new(move |event| {
            let line = match event {
                Event::Interim(text) => format!("interim {text}"),
                Event::Final(text) => format!("final {text}"),
                Event::Failed(_) => "failed".to_owned(),
                Event::Recovered => "recovered".to_owned(),
                Event::Warning(text) => format!("warning {text}"),
                other @ (Event::Turn(_) | Event::Usage(_) | Event::Provider(_)) => {
                    panic!("{other:?}")
                }
            };
            events.lock().unwrap().push((id, line));
        });
        self.users.insert(id, User::default());
        self.handle(Command::Open { stream: id, sink });
    }

    pub(super) fn handle(&mut self, command: Command) {
        self.scheduler.handle(self.now, command);
        for output in self.scheduler.take_outputs() {
            match output {
                Output::Run { worker, job } => {
                    let took = Duration::from_secs_f64(
                        job.pcm.len() as f64 / SAMPLE_RATE as f64 * self.cost,
                    );
                    assert!(self.jobs.iter().all(|(_, busy, ..)| *busy != worker), "it is idle");
                    self.jobs.push((self.now + took, worker, job, took));
                }
                Output::Send { sink, event } => sink.send(event),
            }
        }
        for (id, line) in self.events.lock().unwrap().drain(..) {
            self.log.push((self.now, id, line));
        }
        // A cancelled job ends at once.
        let (now, mut jobs) = (self.now, std::mem::take(&mut self.jobs));
        jobs.iter_mut()
            .filter(|(end, _, job, _)| job.cancelled.load(Ordering::Relaxed) && *end > now)
            .for_each(|(end, ..)| *end = now);
        self.jobs = jobs;
    }

    fn finish_jobs(&mut self) {
        while let Some(at) = self.jobs.iter().position(|(end, ..)| *end <= self.now) {
            let (_, worker, job, duration) = self.jobs.remove(at);
            let result = if self.failing > 0 {
                self.failing -= 1;
                Err("no memory".to_owned())
            } else if job.cancelled.load(Ordering::Relaxed) {
                Ok(None)
            } else {
                let mean_log_probability = if job.careful { -0.1 } else { self.careless };
                Ok(Some(Transcription { text: hear(&job.pcm), mean_log_probability }))
            };
            let failed = result.is_err();
            let done = Done { worker, job: job.number, pcm: job.pcm, result, duration };
            self.handle(Command::Done(done));
            if failed {
                self.handle(Command::WorkerReady(worker));
            }
        }
    }

    /// User `id` says `sound`, after the pre-roll.
    pub(super) fn speak(&mut self, id: u64, sound: Vec<i16>) {
        let user = self.users.get_mut(&id).unwrap();
        let end = sound.iter().rposition(|sample| sample.saturating_abs() >= BASE).unwrap_or(0);
        user.true_end = self.now + Duration::from_secs_f64(end as f64 / SAMPLE_RATE as f64);
        user.sound = sound;
        // Whatever follows the words is the detector's silence.
        user.sound.truncate(end + 1);
        user.sound.resize(end + 1 + DETECTOR_SILENCE, 0);
        user.sent = 0;
    }

    /// Lets `time` pass.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += FRAME_TIME;
            self.finish_jobs();
            let ids: Vec<u64> = self.users.keys().copied().collect();
            for id in ids {
                self.send_frame(id);
            }
            self.finish_jobs();
        }
    }

    fn send_frame(&mut self, id: u64) {
        let user = self.users.get_mut(&id).unwrap();
        if user.sound.is_empty() {
            return;
        }
        let starts = !user.in_speech;
        let end = (user.sent + FRAME).min(user.sound.len());
        let frame = user.sound[user.sent..end].to_vec();
        user.sent = end;
        let ends = end == user.sound.len();
        user.in_speech = !ends;
        if ends {
            user.sound.clear();
        }
        if starts {
            self.handle(Command::StartSpeech(id));
            self.handle(Command::Audio(id, vec![0; PRE_ROLL]));
        }
        self.handle(Command::Audio(id, frame));
        if ends {
            self.handle(Command::EndSpeech(id));
        }
    }

    /// Says `sound` and waits for it and two more seconds. Returns the final transcript and its
    /// time since the true end.
    pub(super) fn speak_alone(&mut self, id: u64, sound: Vec<i16>) -> (String, Duration) {
        let length = sound.len();
        self.speak(id, sound);
        let true_end = self.users[&id].true_end;
        self.pass(Duration::from_secs_f64(length as f64 / SAMPLE_RATE as f64 + 2.0));
        let finals = self.finals(id);
        let (at, text) = finals.last().expect("a final transcript").clone();
        (text, at - true_end)
    }

    /// Final transcripts of a stream, with their times.
    pub(super) fn finals(&self, id: u64) -> Vec<(Duration, String)> {
        let mine = self.log.iter().filter(|(_, stream, _)| *stream == id);
        mine.filter_map(|(at, _, line)| Some((*at, line.strip_prefix("final ")?.to_owned())))
            .collect()
    }

    pub(super) fn interims(&self, id: u64) -> Vec<String> {
        let mine = self.log.iter().filter(|(_, stream, _)| *stream == id);
        mine.filter_map(|(_, _, line)| Some(line.strip_prefix("interim ")?.to_owned())).collect()
    }

    pub(super) fn decodes(&self, purpose: Purpose) -> u64 {
        self.counters.snapshot()[purpose as usize].decodes
    }
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
