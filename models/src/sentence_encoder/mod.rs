//! Sentence embeddings of all-MiniLM-L6-v2 (Apache-2.0): texts with a similar meaning have vectors
//! with a large cosine. The network reads English.
//!
//! The network is a BERT of six layers (Devlin et al. 2018, arXiv:1810.04805). It runs in plain
//! Rust instead of ONNX Runtime, for three reasons. Its package has no ONNX graph. Weights of 8 bits
//! need 23 MB instead of 90 MB. And vectors do not depend on the machine: sums of products are
//! integers, and no other step uses fused multiply-add, so every instruction set computes the same
//! bits.
//!
//! ```no_run
//! # fn main() -> Result<(), String> {
//! let models = models::paths::models_dir(None);
//! let encoder = models::sentence_encoder::SentenceEncoder::load(&models)?;
//! let (question, passage) = (encoder.encode("When are you open?"), encoder.encode("We open at 9."));
//! let cosine: f32 = question.iter().zip(&passage).map(|(a, b)| a * b).sum();
//! # Ok(()) }
//! ```

mod kernels;
mod layers;
mod network;
mod safetensors;
mod tokenizer;

use std::path::{Path, PathBuf};

use self::network::Network;
use self::tokenizer::Tokenizer;
use crate::paths;
use crate::simd::{DetectedIsa, Isa};

/// Number of components of a vector.
pub const DIMENSIONS: usize = 384;
/// Maximum number of tokens of a text, with the two that enclose it. English has about four tokens
/// in three words.
pub const MAX_TOKENS: usize = 128;
/// Files in the directory [`paths::sentence_encoder`].
pub const FILES: [&str; 2] = [WEIGHTS, VOCABULARY];

const WEIGHTS: &str = "model.safetensors";
const VOCABULARY: &str = "vocab.txt";

/// Computes vectors of texts. One instance serves all threads; it has no lock.
pub struct SentenceEncoder {
    isa: DetectedIsa,
    tokenizer: Tokenizer,
    network: Network,
}

impl SentenceEncoder {
    /// Loads the weights and the vocabulary below the models' directory (see
    /// [`paths::models_dir`]), for the best vectors of this machine. It reads 90 MB and keeps
    /// 23 MB, and takes some tenths of a second.
    ///
    /// # Errors
    /// One sentence that says which file is missing or damaged, and what to do. Only shapes and
    /// impossible values are checked. The setup script checks the hash of the files.
    pub fn load(models_dir: &Path) -> Result<Self, String> {
        Self::load_for(models_dir, Isa::best())
    }

    /// Like [`SentenceEncoder::load`], for a chosen instruction set (for tests and benches). If the
    /// machine lacks `isa`, the portable code runs.
    ///
    /// # Errors
    /// As [`SentenceEncoder::load`].
    pub fn load_for(models_dir: &Path, isa: Isa) -> Result<Self, String> {
        check_installed(models_dir)?;
        let [weights, vocabulary] = files(models_dir);
        let tokenizer = std::fs::read_to_string(&vocabulary)
            .map_err(|error| error.to_string())
            .and_then(Tokenizer::parse)
            .map_err(|reason| damaged(&vocabulary, &reason))?;
        let network = safetensors::Tensors::open(&weights)
            .and_then(|tensors| Network::load(&tensors, tokenizer.len()))
            .map_err(|reason| damaged(&weights, &reason))?;
        Ok(Self { isa: DetectedIsa::new(isa), tokenizer, network })
    }

    /// Vector of `text`: [`DIMENSIONS`] components, normalised to length 1, so that the dot product
    /// of two vectors is their cosine. Only the first [`MAX_TOKENS`] tokens count. A text without
    /// any letter, digit or symbol has the zero vector, whose cosine with every vector is 0.
    ///
    /// Takes some milliseconds of CPU time for a question, and a tenth of a second for a text of
    /// [`MAX_TOKENS`] tokens.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<f32> {
        let tokens = self.tokens(text);
        if tokens.is_empty() {
            return vec![0.0; DIMENSIONS];
        }
        self.network.run(self.isa, &tokens)
    }

    /// Ids of the tokens of `text`: at most [`MAX_TOKENS`], with the two that enclose them. Empty
    /// for a text that has the zero vector.
    #[must_use]
    pub fn tokens(&self, text: &str) -> Vec<u16> {
        self.tokenizer.encode(text, MAX_TOKENS)
    }
}

/// Checks that all files exist.
///
/// # Errors
/// One sentence that says what is missing, and what to do.
pub fn check_installed(models_dir: &Path) -> Result<(), String> {
    match files(models_dir).into_iter().find(|file| !file.is_file()) {
        Some(missing) => Err(format!(
            "{} is missing (needed by the sentence encoder): run `make setup`",
            missing.display()
        )),
        None => Ok(()),
    }
}

fn files(models_dir: &Path) -> [PathBuf; 2] {
    FILES.map(|file| paths::sentence_encoder(models_dir).join(file))
}

fn damaged(file: &Path, reason: &str) -> String {
    format!("{} is damaged ({reason}): run `make setup`", file.display())
}
