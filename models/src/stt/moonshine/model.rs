//! The network: an encoder over the samples and a decoder that writes one token at a time.
//!
//! ```text
//! samples [1, S] ─► encoder ─► states [1, S / 384, 288] ─► decoder ─► logits [1, 1, 32768]
//!                                                          ▲  │ keys and values of each layer:
//!                                                          └──┘ [1, 8, tokens so far, 36]
//! ```
//!
//! The keys and values that the decoder returns are its inputs for the next token. They are passed
//! by reference and never copied here. ONNX Runtime allocates the grown ones for each token.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ort::environment::Environment;
use ort::ep;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor, TensorRef};

use super::tokenizer::{END, START, Tokenizer};
use super::{SAMPLE_RATE, SpeechDecoder, Transcription};
use crate::{manifest, onnx_runtime, paths};

const ENCODER_FILE: &str = "encoder_model.ort";
const DECODER_FILE: &str = "decoder_model_merged.ort";
const TOKENIZER_FILE: &str = "tokenizer.bin";

/// Shape of the keys and values of one layer: batch, heads, one token, size of a head.
const CACHE_SHAPE: [usize; 4] = [1, 8, 1, 36];
/// Keys and values of all layers: six layers, each with two of the decoder and two of the encoder.
const CACHE_TENSORS: usize = 24;
/// Number of tokens that the network can write.
const VOCABULARY: usize = 32_768;
/// Samples that the encoder needs to return one state.
const MIN_SAMPLES: usize = 1_600;
/// Maximum number of tokens per second of audio. Fast speech has five; more is a repetition.
const TOKENS_PER_SECOND: f32 = 6.5;
/// Number of tokens that any audio may have.
const MIN_TOKENS: usize = 4;
/// Samples of silence before the second attempt. The network computes in 8 bits, and with other
/// frames it makes other errors. The more probable of both transcripts is better: on the word error
/// rate set, 9.4 % instead of 10.3 % of the words are wrong, in noise 21 % instead of 25 %.
const SHIFT: usize = 200;
/// Longest sequence of tokens whose repetition is found.
const MAX_LOOP_TOKENS: usize = 8;

/// Checks that all files of the model and ONNX Runtime are installed. Does not load them.
///
/// # Errors
/// One sentence that says what is missing or damaged, and what to do.
pub fn check_installed(dir: &Path) -> Result<(), String> {
    let runtime = paths::onnx_runtime(dir);
    if !runtime.is_file() {
        return Err(format!(
            "{} is missing (needed by Moonshine): run `make setup`",
            runtime.display()
        ));
    }
    manifest::model("moonshine-tiny-en").check_files(dir)
}

/// A loaded network.
pub(super) struct Network {
    encoder: Session,
    decoder: Session,
    tokenizer: Tokenizer,
    /// The samples of the request, from -1 to 1.
    samples: Vec<f32>,
    /// A mask that covers everything. The encoder's has one entry per sample.
    mask: Vec<i64>,
    /// Stands for the keys and values before the first token. The decoder ignores it there.
    empty_cache: DynValue,
    tokens: Vec<i64>,
}

impl Network {
    /// Loads the network from the models' directory `dir`. [`check_installed`] must have found its
    /// files to be complete.
    ///
    /// # Errors
    /// One sentence that says what cannot be loaded, and what to do.
    pub(super) fn load(dir: &Path) -> Result<Self, String> {
        let environment = onnx_runtime::environment(&paths::onnx_runtime(dir))?;
        let dir = paths::moonshine(dir);
        let session = |name: &str| {
            let path = dir.join(name);
            open_session(&environment, &path)
                .map_err(|error| format!("cannot load {}: {error}", path.display()))
        };
        let (encoder, decoder) = (session(ENCODER_FILE)?, session(DECODER_FILE)?);
        let path = dir.join(TOKENIZER_FILE);
        let tokenizer = std::fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|file| Tokenizer::parse(&file))
            .map_err(|error| format!("cannot load {}: {error}", path.display()))?;
        if tokenizer.len() != VOCABULARY {
            return Err(format!("{} has {} tokens", path.display(), tokenizer.len()));
        }
        let empty = vec![0.0f32; CACHE_SHAPE.iter().product()];
        let empty_cache =
            Tensor::from_array((CACHE_SHAPE, empty)).map_err(|error| error.to_string())?.into_dyn();
        let mut network = Self {
            encoder,
            decoder,
            tokenizer,
            samples: Vec::new(),
            mask: Vec::new(),
            empty_cache,
            tokens: Vec::new(),
        };
        // The first inference allocates memory and would be late.
        network.decode(&[0; SAMPLE_RATE], false, &AtomicBool::new(false))?;
        onnx_runtime::release_free_memory();
        Ok(network)
    }

    /// The encoder's states for `silence` zeros and `pcm`.
    fn encode(&mut self, silence: usize, pcm: &[i16]) -> ort::Result<DynValue> {
        self.samples.clear();
        self.samples.resize(silence, 0.0);
        self.samples.extend(pcm.iter().map(|sample| f32::from(*sample) / 32_768.0));
        self.samples.resize(self.samples.len().max(MIN_SAMPLES), 0.0);
        let shape = [1, self.samples.len()];
        self.mask.resize(self.samples.len(), 1);
        let outputs = self.encoder.run(ort::inputs![
            "input_values" => TensorRef::from_array_view((shape, &*self.samples))?,
            "attention_mask" => TensorRef::from_array_view((shape, &*self.mask))?,
        ])?;
        let (_, states) = outputs.into_iter().next().ok_or_else(|| missing("the encoder"))?;
        Ok(states)
    }

    /// Writes the tokens of the most likely transcript into `self.tokens`, without start and end.
    /// Returns the sum of their log probabilities; `None` if the request was cancelled.
    fn write_tokens(
        &mut self,
        states: &DynValue,
        max_tokens: usize,
        cancelled: &AtomicBool,
    ) -> ort::Result<Option<f32>> {
        self.tokens.clear();
        let mut log_probability = 0.0;
        let mut cache: Vec<DynValue> = Vec::new();
        let mut token = START;
        // One entry: the decoder takes every 384th and broadcasts it to all states.
        let mask = Tensor::from_array(([1usize, 1], vec![1i64]))?;
        for step in 0..max_tokens {
            if cancelled.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let ids = Tensor::from_array(([1usize, 1], vec![token]))?;
            let has_cache = Tensor::from_array(([1usize], vec![step > 0]))?;
            let mut inputs: Vec<SessionInputValue<'_>> = Vec::with_capacity(CACHE_TENSORS + 4);
            inputs.extend([(&mask).into(), (&ids).into(), states.into()]);
            if cache.is_empty() {
                inputs.extend((0..CACHE_TENSORS).map(|_| (&self.empty_cache).into()));
            } else {
                inputs.extend(cache.iter().map(SessionInputValue::from));
            }
            inputs.push((&has_cache).into());
            let outputs = self.decoder.run(&*inputs)?;
            drop(inputs);
            let mut outputs = outputs.into_iter().map(|(_, value)| value);
            let logits = outputs.next().ok_or_else(|| missing("the decoder"))?;
            let (next, probability) = argmax(logits.try_extract_tensor::<f32>()?.1);
            log_probability += probability;
            if next == END {
                break;
            }
            self.tokens.push(next);
            token = next;
            if cache.is_empty() {
                cache.extend(outputs);
            } else {
                // Those of the encoder, the last two of each layer, remain.
                for (at, value) in outputs.enumerate().filter(|(at, _)| at % 4 < 2) {
                    cache[at] = value;
                }
            }
            if let Some(end) = repetition_start(&self.tokens) {
                self.tokens.truncate(end);
                break;
            }
        }
        Ok(Some(log_probability))
    }

    /// Transcribes `silence` zeros and `pcm`.
    fn transcribe(
        &mut self,
        silence: usize,
        pcm: &[i16],
        cancelled: &AtomicBool,
    ) -> ort::Result<Option<Transcription>> {
        let seconds = pcm.len() as f32 / SAMPLE_RATE as f32;
        let max_tokens = ((seconds * TOKENS_PER_SECOND) as usize).max(MIN_TOKENS);
        let states = self.encode(silence, pcm)?;
        let written = self.write_tokens(&states, max_tokens, cancelled)?;
        Ok(written.map(|log_probability| Transcription {
            text: self.tokenizer.decode(&self.tokens),
            mean_log_probability: log_probability / (self.tokens.len() + 1) as f32,
        }))
    }
}

impl SpeechDecoder for Network {
    fn decode(
        &mut self,
        pcm: &[i16],
        careful: bool,
        cancelled: &AtomicBool,
    ) -> Result<Option<Transcription>, String> {
        let mut transcribe =
            |silence| self.transcribe(silence, pcm, cancelled).map_err(|error| error.to_string());
        let Some(first) = transcribe(0)? else { return Ok(None) };
        if !careful || !first.is_uncertain() {
            return Ok(Some(first));
        }
        let second = transcribe(SHIFT)?;
        let is_better =
            |second: &Transcription| second.mean_log_probability > first.mean_log_probability;
        let first_is_better = second.as_ref().is_some_and(|second| !is_better(second));
        Ok(if first_is_better { Some(first) } else { second })
    }
}

fn missing(network: &str) -> ort::Error {
    ort::Error::new(format!("{network} has no output"))
}

fn open_session(environment: &Environment, file: &Path) -> ort::Result<Session> {
    // One thread, because the calls need the cores. No arena and no memory pattern: both keep the
    // memory of the longest audio so far, and without them a decode takes no longer.
    Session::builder(environment)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_memory_pattern(false)?
        .with_execution_providers([ep::CPU::default().with_arena_allocator(false).build()])?
        .commit_from_file(file)
}

/// The most likely token and the logarithm of its probability.
fn argmax(logits: &[f32]) -> (i64, f32) {
    let (mut best, mut highest) = (0, f32::NEG_INFINITY);
    for (id, logit) in logits.iter().enumerate() {
        if *logit > highest {
            (best, highest) = (id, *logit);
        }
    }
    let sum: f32 = logits.iter().map(|logit| (logit - highest).exp()).sum();
    (best as i64, -sum.ln())
}

/// Where a loop begins at the end of `tokens`, after its first pass. A sequence of up to two tokens
/// counts as a loop in its fifth pass, a longer one in its third: people repeat short words.
fn repetition_start(tokens: &[i64]) -> Option<usize> {
    (1..=MAX_LOOP_TOKENS).find_map(|length| {
        let passes = if length <= 2 { 5 } else { 3 };
        let start = tokens.len().checked_sub(length * passes)?;
        let looped = &tokens[start..];
        (looped[length..] == looped[..looped.len() - length]).then_some(start + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argmax_token_is_found_with_its_probability() {
        let (token, log_probability) = argmax(&[0.0, 2.0f32.ln(), 0.0]);
        assert_eq!(token, 1);
        assert!((log_probability.exp() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_loop_is_cut_after_its_first_pass_and_repeated_words_remain() {
        assert_eq!(repetition_start(&[7, 7, 7, 7]), None);
        assert_eq!(repetition_start(&[9, 7, 7, 7, 7, 7]), Some(2));
        assert_eq!(repetition_start(&[1, 2, 3, 1, 2, 3]), None);
        assert_eq!(repetition_start(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3]), Some(4));
        assert_eq!(repetition_start(&[]), None);
    }
}
