//! One real request to a model, to try it: a spoken sentence, the transcript of a sentence, a short
//! answer. Each returns how long the first result took. Dropping the future cancels the request.

use std::f32::consts::PI;
use std::sync::Arc;
use std::time::Duration;

use conversation::event::{HistoryItem, Role};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::llm::{self, Llm};
use crate::stt::{self, Stt};
use crate::tts::{self, Tts, Upsampler};
use crate::{Error, ErrorKind, Sink};

/// Maximum duration of a spoken text in seconds.
const MAX_SECONDS: usize = 60;
/// Maximum number of bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 300;
/// Sample rate of an STT in Hz, and its samples per piece: 50 ms.
const STT_RATE: u32 = 16_000;
const PIECE_SAMPLES: usize = 800;
const PIECE: Duration = Duration::from_millis(50);
/// Silence after a sentence, in samples: the end of speech is noticed that much later in a call.
const SILENCE_SAMPLES: usize = 4_000;

/// A spoken text.
#[derive(Clone, Debug)]
pub struct Speech {
    /// Mono samples.
    pub pcm: Vec<i16>,
    /// Hz.
    pub sample_rate: u32,
    /// Time from the request to the first sound.
    pub latency: Duration,
}

/// A transcript or an answer.
#[derive(Clone, Debug)]
pub struct TextResult {
    /// The text; of an answer, its beginning.
    pub text: String,
    /// Time from the end of the speech to its transcript, or from the request to the first text.
    pub latency: Duration,
}

/// A sink, and the events that it takes.
fn channel<T: Send + 'static>() -> (Sink<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = unbounded_channel();
    // Fails only if nobody waits for the events any more.
    (Sink::new(move |event| _ = sender.send(event)), receiver)
}

fn failed(message: &str) -> Error {
    Error::new(ErrorKind::Failed, message)
}

fn timeout(limit: Duration) -> Error {
    let message = format!("no result within {} s", limit.as_secs());
    Error::new(ErrorKind::Timeout, message)
}

/// Lets `tts` speak a short text, within `limit`.
///
/// # Errors
/// One sentence with the reason. The voice of another TTS is none of this one: if it is replaced,
/// that is a failure.
pub async fn speak(
    tts: Arc<dyn Tts>,
    request: tts::Request,
    limit: Duration,
) -> Result<Speech, Error> {
    let started = Instant::now();
    let (sink, mut events) = channel();
    // The connection of a call is closed with it.
    let tts = tts.open_call(&request).unwrap_or(tts);
    let _request = tts.speak(request, sink)?;
    let mut speech = Speech { pcm: Vec::new(), sample_rate: 0, latency: Duration::ZERO };
    loop {
        let event = timeout_at(started + limit, events.recv()).await;
        match event.map_err(|_| timeout(limit))? {
            Some(tts::Event::Audio { pcm, sample_rate }) => {
                if speech.pcm.is_empty() {
                    speech.latency = started.elapsed();
                    speech.sample_rate = sample_rate;
                }
                speech.pcm.extend_from_slice(&pcm);
                if speech.pcm.len() / MAX_SECONDS > sample_rate as usize {
                    return Err(failed("the voice does not stop speaking"));
                }
            }
            Some(tts::Event::End) if speech.pcm.is_empty() => {
                return Err(failed("the voice sent no sound"));
            }
            Some(tts::Event::End) => return Ok(speech),
            Some(tts::Event::Failed(error)) => return Err(error),
            Some(tts::Event::Warning(sentence)) => return Err(failed(&sentence)),
            Some(_) => {}
            None => return Err(failed("the voice stopped without an end")),
        }
    }
}

/// Lets `stt` transcribe a sentence, which is sent at the pace of speech, within `limit`.
///
/// # Errors
/// One sentence with the reason, also if it recognizes no word.
pub async fn transcribe(
    stt: &dyn Stt,
    speech: &Speech,
    limit: Duration,
) -> Result<TextResult, Error> {
    let started = Instant::now();
    let mut pcm = to_stt_rate(speech)?;
    pcm.resize(pcm.len() + SILENCE_SAMPLES, 0);
    let (sink, mut events) = channel();
    let mut stream = stt.open(sink)?;
    stream.start_call();
    stream.start_speech();
    let mut pieces = pcm.chunks(PIECE_SAMPLES);
    let mut pace = interval(PIECE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut ended = None;
    loop {
        let next = async {
            tokio::select! {
                biased;
                event = events.recv() => Some(event),
                _ = pace.tick(), if ended.is_none() => None,
            }
        };
        let Some(event) = timeout_at(started + limit, next).await.map_err(|_| timeout(limit))?
        else {
            match pieces.next() {
                Some(piece) => stream.push_audio(piece),
                None => {
                    stream.end_speech();
                    ended = Some(Instant::now());
                }
            }
            continue;
        };
        match (event, ended) {
            (Some(stt::Event::Final(text)), Some(ended)) if !text.trim().is_empty() => {
                return Ok(TextResult { text, latency: ended.elapsed() });
            }
            (Some(stt::Event::Final(_)), Some(_)) => {
                return Err(failed("no word of the test sentence was recognized"));
            }
            (Some(stt::Event::Failed(error)), _) => return Err(error),
            (Some(stt::Event::Warning(sentence)), _) => return Err(failed(&sentence)),
            (Some(_), _) => {}
            (None, _) => return Err(failed("the transcription stopped without an end")),
        }
    }
}

/// Asks `llm` a short question, within `limit`.
///
/// # Errors
/// One sentence with the reason.
pub async fn ask(llm: &dyn Llm, limit: Duration) -> Result<TextResult, Error> {
    let started = Instant::now();
    let (sink, mut events) = channel();
    let question = HistoryItem {
        role: Role::User,
        speaker: None,
        name: None,
        arguments: None,
        text: "Hello, can you hear me?".into(),
        interrupted: false,
        utterance: None,
        started_at: None,
        ended_at: None,
        in_context: true,
    };
    let request = llm::Request {
        prompt: "Answer in one short sentence.".into(),
        history: vec![Arc::new(question)],
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    };
    let _request = llm.ask(request, sink);
    let mut answer = None::<TextResult>;
    loop {
        let event = timeout_at(started + limit, events.recv()).await;
        match event.map_err(|_| timeout(limit))? {
            Some(llm::Event::Text(text)) => {
                let latency = started.elapsed();
                let so_far = answer.get_or_insert(TextResult { text: String::new(), latency });
                so_far.text.push_str(&text);
                if so_far.text.len() > MAX_ANSWER_BYTES {
                    break;
                }
            }
            Some(llm::Event::End { .. }) => break,
            Some(llm::Event::Failed(error)) => return Err(error),
            Some(llm::Event::Warning(sentence)) => return Err(failed(&sentence)),
            Some(
                llm::Event::ToolCall { .. } | llm::Event::Provider(_) | llm::Event::ServedBy(_),
            ) => {}
            None => return Err(failed("the answer stopped without an end")),
        }
    }
    let mut answer = answer.ok_or_else(|| failed("the answer has no text"))?;
    answer.text.truncate(answer.text.floor_char_boundary(MAX_ANSWER_BYTES));
    Ok(answer)
}

/// The samples at the rate of an STT.
fn to_stt_rate(speech: &Speech) -> Result<Vec<i16>, Error> {
    if speech.sample_rate == STT_RATE {
        return Ok(speech.pcm.clone());
    }
    let mut upsampler = Upsampler::new(speech.sample_rate)?;
    let mut pcm = upsampler.push(&speech.pcm);
    pcm.extend(upsampler.finish());
    Ok(third_of(&pcm))
}

/// Every third sample, after a low-pass at a sixth of the rate: a sinc in a Hann window
/// (Oppenheim, Schafer: Discrete-Time Signal Processing, 7.5).
fn third_of(pcm: &[i16]) -> Vec<i16> {
    const HALF: usize = 24;
    let taps: Vec<f32> = (0..=2 * HALF)
        .map(|i| {
            let x = (i as f32 - HALF as f32) / 3.0;
            let sinc = if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
            let window = 0.5 + 0.5 * (PI * x * 3.0 / (HALF as f32 + 1.0)).cos();
            sinc * window / 3.0
        })
        .collect();
    let filtered = |center: usize| {
        let sample = |i: usize| (center + i).checked_sub(HALF).and_then(|at| pcm.get(at));
        let sum = taps.iter().enumerate().map(|(i, tap)| tap * f32::from(*sample(i).unwrap_or(&0)));
        sum.sum::<f32>().round() as i16
    };
    (0..pcm.len()).step_by(3).map(filtered).collect()
}

#[cfg(test)]
mod tests;
