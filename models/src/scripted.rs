//! Scripted models: STT, LLM and TTS whose content and timing follow a script. They serve tests and
//! measurements of the server without the cost of real models. Agents may name them
//! (`provider:"script"`) only if the operator allows it.
//!
//! The JSON form is that of a workload file: `{"providers": {"stt": …, "llm": …, "tts": …},
//! "utterances": [{"transcript", "reply", …}]}`. Every field is optional. Times are in seconds.
//!
//! The scripted STT has these states (`run_stt`; `PendingUtterance` with its two deadlines):
//!
//! ```text
//!     ┌─┐ speech within 500 ms of an utterance with `sound_s`: ignored
//!     ▼ │
//!     Idle ────── speech starts ──────► PendingUtterance ─┐ interim_due: Interim
//!      ▲                                  │         ▲     │ speech ends: final_due is set
//!      └─────── final_due: Final ─────────┘         └─────┘ restarts (`sound_s`): it is cleared
//! ```

mod tap;

use std::f32::consts::TAU;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conversation::event::{HistoryItem, Role};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::llm::Llm;
use crate::stt::{Stt, SttStream};
use crate::tts::Tts;
use crate::{Error, ErrorKind, Handle, Sink, llm, stt, tts};

/// Content and timing of the models.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Script {
    /// Timing of each model.
    pub providers: ProviderTimings,
    /// What the user says, in order and repeated from the beginning, and the replies.
    pub utterances: Vec<Utterance>,
    /// The times of the VAD, from which the true onset is computed.
    pub settings: ScriptSettings,
    /// Name of a file that receives the samples of the STT, so that a test can compare them with
    /// what was sent. Letters, digits, `_` and `-`.
    pub tap: Option<String>,
}

/// Timing of each model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderTimings {
    /// Speech to text.
    pub stt: SttTiming,
    /// Language model.
    pub llm: LlmTiming,
    /// Text to speech.
    pub tts: TtsTiming,
}

/// Timing of the STT.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct SttTiming {
    /// From the true onset to the interim transcript, in seconds.
    #[serde(rename = "interim_after_onset_s")]
    pub interim_delay: f64,
    /// From the true end to the final transcript, in seconds.
    #[serde(rename = "final_after_end_s")]
    pub final_delay: f64,
}

/// Timing of the LLM. A token is a word with its blank.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct LlmTiming {
    /// From the request to the first token, in seconds.
    #[serde(rename = "first_token_s")]
    pub first_token_delay: f64,
    /// Tokens per second after that.
    pub tokens_per_s: f64,
}

/// Timing of the TTS, which generates a tone for the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct TtsTiming {
    /// From the request to the first chunk, in seconds.
    #[serde(rename = "first_audio_s")]
    pub first_audio_delay: f64,
    /// Seconds of audio generated per second.
    pub speed_x_realtime: f64,
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Audio per chunk, in seconds.
    #[serde(rename = "chunk_s")]
    pub chunk_seconds: f64,
    /// Audio per character, in seconds.
    #[serde(rename = "s_per_char")]
    pub seconds_per_char: f64,
    /// Frequency of the tone in Hz.
    pub tone_hz: f32,
}

/// The settings that the script uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScriptSettings {
    /// The VAD.
    pub vad: DetectorTiming,
}

/// When the VAD reports speech.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct DetectorTiming {
    /// Seconds after the true onset.
    pub start: f64,
    /// Seconds after the true end.
    pub silence: f64,
}

/// One utterance of the user, and its reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Utterance {
    /// Start in the audio file, if the user is one.
    pub onset_s: Option<f64>,
    /// End in that file. With both, the final transcript follows the onset by this length, whatever
    /// the VAD reports.
    pub end_s: Option<f64>,
    /// Alternative: length of its audio. The final transcript then comes with the end of the speech
    /// segment in which that much audio was received. The samples are counted, so neither a pause
    /// within the utterance nor a sender that stalls splits it.
    pub sound_s: Option<f64>,
    /// Final transcript.
    pub transcript: String,
    /// Interim transcript; empty = the first two words of `transcript`.
    pub interim: String,
    /// Reply of the LLM.
    pub reply: String,
    /// Tool calls of the reply.
    pub calls: Vec<ScriptedToolCall>,
    /// The reply fails for this reason.
    pub fail: Option<String>,
    /// Key of the guardrail that the transcript violates.
    pub guardrail: Option<String>,
}

/// A tool call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScriptedToolCall {
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: serde_json::Map<String, Value>,
}

impl Default for SttTiming {
    fn default() -> Self {
        Self { interim_delay: 0.2, final_delay: 0.15 }
    }
}

impl Default for LlmTiming {
    fn default() -> Self {
        Self { first_token_delay: 0.2, tokens_per_s: 50.0 }
    }
}

impl Default for TtsTiming {
    fn default() -> Self {
        Self {
            first_audio_delay: 0.1,
            speed_x_realtime: 5.0,
            sample_rate: 24_000,
            chunk_seconds: 0.1,
            seconds_per_char: 0.06,
            tone_hz: 220.0,
        }
    }
}

impl Default for DetectorTiming {
    fn default() -> Self {
        Self { start: 0.05, silence: 0.25 }
    }
}

/// A duration in seconds: zero if not finite, and between zero and one hour.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, 3600.0) } else { 0.0 })
}

/// The three models of a script.
#[derive(Clone)]
pub struct ScriptedProvider {
    script: Arc<Script>,
    runtime: Runtime,
    tap_folder: Option<PathBuf>,
}

impl ScriptedProvider {
    /// Models that follow `script`, timed on `runtime`.
    #[must_use]
    pub fn new(script: Script, runtime: Runtime) -> Self {
        Self { script: Arc::new(script), runtime, tap_folder: None }
    }

    /// Sets the folder for the files that [`Script::tap`] names. Without one, no file is written.
    #[must_use]
    pub fn with_tap_folder(self, folder: Option<PathBuf>) -> Self {
        Self { tap_folder: folder, ..self }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Handle {
        let task = self.runtime.spawn(work);
        Handle::new(move || task.abort())
    }
}

impl Stt for ScriptedProvider {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn SttStream>, Error> {
        let tap = match (&self.tap_folder, &self.script.tap) {
            (Some(folder), Some(name)) => Some(tap::open(folder, name)?),
            _ => None,
        };
        let (edge_sender, edge_receiver) = mpsc::unbounded_channel();
        let script = Arc::clone(&self.script);
        self.runtime.spawn(run_stt(script, edge_receiver, sink));
        Ok(Box::new(ScriptedSttStream { edges: edge_sender, samples: 0, tap }))
    }
}

/// A stream of the scripted STT. It uses only the edges of speech and the number of samples.
struct ScriptedSttStream {
    edges: mpsc::UnboundedSender<SpeechEdge>,
    /// Number of samples so far.
    samples: u64,
    tap: Option<tap::Tap>,
}

/// The start or end of a speech segment.
#[derive(Clone, Copy)]
struct SpeechEdge {
    is_start: bool,
    at: Instant,
    /// Number of samples before it.
    samples: u64,
}

impl ScriptedSttStream {
    fn send_edge(&self, begins: bool) {
        // Fails only when the runtime, and therefore the call, has ended.
        let _ = self.edges.send(SpeechEdge {
            is_start: begins,
            at: Instant::now(),
            samples: self.samples,
        });
    }
}

impl SttStream for ScriptedSttStream {
    fn start_speech(&mut self) {
        self.send_edge(true);
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        self.samples += pcm.len() as u64;
        if let Some(tap) = &self.tap {
            tap.write(pcm);
        }
    }

    fn end_speech(&mut self) {
        self.send_edge(false);
    }
}

/// Seconds of audio before the VAD's report that a stream receives first.
const PRE_ROLL_SECONDS: f64 = 0.5;

/// Audio of an utterance that the VAD may miss at its ends, in seconds.
const MAX_MISSED_SECONDS: f64 = 0.4;

/// An utterance with incomplete audio ends when no more audio follows for this long. It is shorter
/// than the time for which a call waits for a transcript (`transcript_timeout`).
const INCOMPLETE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A speech segment that starts within this time after an utterance of known length belongs to it.
const CONTINUATION_WINDOW: Duration = Duration::from_millis(500);

/// The utterance that is being spoken.
struct PendingUtterance {
    index: usize,
    interim_due: Option<Instant>,
    final_due: Option<Instant>,
    /// Number of samples before it.
    samples_before: u64,
}

async fn run_stt(
    script: Arc<Script>,
    mut edges: mpsc::UnboundedReceiver<SpeechEdge>,
    sink: Sink<stt::Event>,
) {
    let mut current: Option<PendingUtterance> = None;
    let mut next = 0;
    // End of the last speech segment of an utterance of known length.
    let mut ended: Option<Instant> = None;
    let detector = &script.settings.vad;
    let timing = &script.providers.stt;
    let utterance = |number: usize| script.utterances.get(number % script.utterances.len().max(1));
    loop {
        let next_due = current.as_ref().and_then(|current| {
            [current.interim_due, current.final_due].into_iter().flatten().min()
        });
        let timer = async {
            match next_due {
                Some(next_due) => sleep_until(next_due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            mark = edges.recv() => match (mark, &mut current) {
                (None, _) => return,
                // The VAD split one utterance at a pause: it continues.
                (Some(SpeechEdge { is_start: true, .. }), Some(current)) => {
                    if utterance(current.index)
                        .is_some_and(|utterance| utterance.sound_s.is_some())
                    {
                        current.final_due = None;
                    }
                }
                (Some(SpeechEdge { is_start: true, at, .. }), None)
                    if ended.is_some_and(|ended| at < ended + CONTINUATION_WINDOW) => {}
                (Some(SpeechEdge { is_start: true, at, samples: given }), None) => {
                    let onset = at.checked_sub(seconds(detector.start)).unwrap_or(at);
                    let spoken = utterance(next);
                    let length = spoken.and_then(|spoken| {
                        Some(spoken.end_s? - spoken.onset_s?).filter(|_| spoken.sound_s.is_none())
                    });
                    let last = length.map(|length| onset + seconds(length + timing.final_delay));
                    current = Some(PendingUtterance {
                        index: next,
                        interim_due: Some(onset + seconds(timing.interim_delay)),
                        final_due: last,
                        samples_before: given,
                    });
                    next += 1;
                }
                (Some(SpeechEdge { is_start: false, at, samples: given }), Some(current)) => {
                    let end = at.checked_sub(seconds(detector.silence)).unwrap_or(at)
                        + seconds(timing.final_delay);
                    match utterance(current.index).and_then(|utterance| utterance.sound_s) {
                        Some(length) => {
                            let sound = (given - current.samples_before) as f64 / 16_000.0
                                - PRE_ROLL_SECONDS
                                - detector.silence;
                            current.final_due = Some(if sound + MAX_MISSED_SECONDS >= length {
                                end
                            } else {
                                at + INCOMPLETE_TIMEOUT
                            });
                            ended = Some(at);
                        }
                        None => current.final_due = current.final_due.or(Some(end)),
                    }
                }
                (Some(SpeechEdge { is_start: false, at, .. }), None) => ended = ended.map(|_| at),
            },
            () = timer => {
                let Some(now) = current.as_mut() else { continue };
                let spoken = utterance(now.index);
                let transcript = spoken.map_or("", |spoken| spoken.transcript.as_str());
                // If both are due at the same time, the interim transcript comes first.
                if now.interim_due.take_if(|at| *at <= Instant::now()).is_some() {
                    let own = spoken.map_or("", |spoken| spoken.interim.as_str());
                    let first = if own.is_empty() {
                        transcript.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
                    } else {
                        own.to_owned()
                    };
                    if !first.is_empty() {
                        sink.send(stt::Event::Interim(first));
                    }
                } else {
                    sink.send(stt::Event::Final(transcript.to_owned()));
                    current = None;
                }
            }
        }
    }
}

impl Llm for ScriptedProvider {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let script = Arc::clone(&self.script);
        let start = Instant::now();
        self.spawn(async move {
            let pace = &script.providers.llm;
            let first = start + seconds(pace.first_token_delay);
            let (reply, calls, fail) = scripted_reply(&script, &request);
            if let Some(reason) = fail {
                sleep_until(first).await;
                sink.send(llm::Event::Failed(Error::new(ErrorKind::Failed, reason)));
                return;
            }
            let mut tokens = 0;
            for token in reply.split_inclusive(' ') {
                sleep_until(first + seconds(f64::from(tokens) / pace.tokens_per_s)).await;
                sink.send(llm::Event::Text(token.to_owned()));
                tokens += 1;
            }
            sleep_until(first + seconds(f64::from(tokens) / pace.tokens_per_s)).await;
            for (n, call) in (1..).zip(calls) {
                sink.send(llm::Event::ToolCall {
                    id: format!("call_{n}"),
                    name: call.tool,
                    arguments: Value::Object(call.arguments),
                });
            }
            sink.send(llm::Event::End {
                prompt_tokens: 0,
                cached_tokens: 0,
                completion_tokens: tokens,
            });
        })
    }

    fn check_guardrails(
        &self,
        check: llm::guardrails::GuardrailCheck,
    ) -> llm::guardrails::GuardrailFuture {
        let script = Arc::clone(&self.script);
        let at = Instant::now() + seconds(script.providers.llm.first_token_delay);
        Box::pin(async move {
            sleep_until(at).await;
            let words = knowledge::normalize_words(&check.user_text);
            let spoken = script
                .utterances
                .iter()
                .find(|u| knowledge::normalize_words(&u.transcript) == words);
            let violated = spoken.and_then(|utterance| utterance.guardrail.clone());
            Ok(violated.filter(|key| check.rules.iter().any(|rule| rule.key == *key)))
        })
    }
}

/// The scripted reply to the last turn. After a tool, it is the tool's result. Otherwise it belongs
/// to the utterance with the user's words, or to the first one without a transcript.
fn scripted_reply(
    script: &Script,
    request: &llm::Request,
) -> (String, Vec<ScriptedToolCall>, Option<String>) {
    let last =
        request.history.iter().rev().find(|item| matches!(item.role, Role::User | Role::Tool));
    match last.map(AsRef::as_ref) {
        Some(HistoryItem { role: Role::Tool, text, .. }) => (text.clone(), Vec::new(), None),
        item => {
            let words = knowledge::normalize_words(item.map_or("", |item| &item.text));
            let fits =
                |utterance: &&Utterance| knowledge::normalize_words(&utterance.transcript) == words;
            let found = script.utterances.iter().find(fits).or_else(|| {
                script.utterances.iter().find(|utterance| utterance.transcript.is_empty())
            });
            let Some(found) = found else {
                return ("I have no line for that.".into(), Vec::new(), None);
            };
            let rule = request
                .tools
                .iter()
                .find(|tool| tool.rule.is_some() && found.guardrail.as_ref() == Some(&tool.name));
            match rule {
                Some(rule) => {
                    let call = ScriptedToolCall { tool: rule.name.clone(), arguments: Map::new() };
                    (String::new(), vec![call], None)
                }
                None => (found.reply.clone(), found.calls.clone(), found.fail.clone()),
            }
        }
    }
}

/// Number of samples in one period of the tone.
const SINE_SAMPLES: usize = 2_048;

/// One period of the tone that every voice uses. A table avoids the computation: in a measurement,
/// a call should cost what it costs a server.
fn sine_table() -> &'static [i16; SINE_SAMPLES] {
    static TABLE: OnceLock<[i16; SINE_SAMPLES]> = OnceLock::new();
    TABLE.get_or_init(|| {
        std::array::from_fn(|i| ((i as f32 / SINE_SAMPLES as f32 * TAU).sin() * 8_000.0) as i16)
    })
}

impl Tts for ScriptedProvider {
    fn speak(&self, request: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        let script = Arc::clone(&self.script);
        let start = Instant::now();
        Ok(self.spawn(async move {
            let pace = &script.providers.tts;
            let rate = pace.sample_rate.clamp(8_000, 48_000);
            let total = (request.text.chars().count() as f64
                * pace.seconds_per_char.clamp(0.0, 1.0)
                * f64::from(rate)) as usize;
            let chunk = (pace.chunk_seconds.clamp(0.01, 1.0) * f64::from(rate)) as usize;
            for (n, from) in (0..total).step_by(chunk).enumerate() {
                let made = n as f64 * pace.chunk_seconds / pace.speed_x_realtime.max(0.01);
                sleep_until(start + seconds(pace.first_audio_delay + made)).await;
                let wave = sine_table();
                // Periods per sample in units of 2⁻³². The phase wraps around when the integer
                // overflows.
                let turn = (f64::from(pace.tone_hz) / f64::from(rate) * 4_294_967_296.0) as u32;
                let sample = |i: usize| {
                    wave[((i as u32).wrapping_mul(turn) >> (32 - SINE_SAMPLES.ilog2())) as usize]
                };
                let pcm = (from..total.min(from + chunk)).map(sample).collect();
                sink.send(tts::Event::Audio { pcm, sample_rate: rate });
            }
            sink.send(tts::Event::End);
        }))
    }
}

#[cfg(test)]
mod tests;
