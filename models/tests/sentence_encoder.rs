//! The sentence encoder with its model, compared with reference code (`sentence_encoder/`).
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use models::paths;
use models::sentence_encoder::{self, DIMENSIONS, FILES, SentenceEncoder};
use models::vad::Isa;
use serde::Deserialize;

/// Minimum cosine of a vector and that of the reference, whose weights have 32 bits.
const MIN_COSINE: f32 = 0.995;

/// What the reference computed, see `sentence_encoder/expected.py`.
#[derive(Deserialize)]
struct Expected {
    tokens: Vec<(String, Vec<u16>)>,
    /// Components times 10,000.
    vectors: Vec<(String, Vec<f32>)>,
    searches: Vec<Search>,
}

#[derive(Deserialize)]
struct Search {
    question: String,
    /// Cosine of each passage, the best first.
    passages: Vec<(f32, String)>,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("sentence_encoder/expected.json")).unwrap()
}

/// The encoder, loaded once.
fn encoder() -> &'static SentenceEncoder {
    static ENCODER: LazyLock<SentenceEncoder> = LazyLock::new(|| {
        SentenceEncoder::load(&common::models_dir()).unwrap_or_else(|error| panic!("{error}"))
    });
    &ENCODER
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn assert_unit_length(vector: &[f32]) {
    assert_eq!(vector.len(), DIMENSIONS);
    assert!((dot(vector, vector) - 1.0).abs() < 1e-5);
}

#[test]
fn tokens_equal_the_reference() {
    let expected = expected().tokens;
    assert!(expected.len() > 20);
    for (text, tokens) in expected {
        assert_eq!(encoder().tokens(&text), tokens, "{text:?}");
    }
}

#[test]
fn vectors_are_close_to_the_reference() {
    let expected = expected().vectors;
    assert!(expected.len() > 20);
    let mut least = 1f32;
    for (text, reference) in expected {
        let vector = encoder().encode(&text);
        assert_unit_length(&vector);
        let cosine = dot(&vector, &reference) / dot(&reference, &reference).sqrt();
        assert!(cosine >= MIN_COSINE, "{cosine}: {text:?}");
        least = least.min(cosine);
    }
    println!("least cosine: {least:.4}");
}

#[test]
fn passages_have_the_ranks_of_the_reference() {
    /// Difference of cosines from which the reference prefers one passage.
    const PREFERENCE: f32 = 0.02;
    for Search { question, passages } in expected().searches {
        let question_vector = encoder().encode(&question);
        let cosines: Vec<(f32, f32)> = passages
            .iter()
            .map(|(cosine, text)| (*cosine, dot(&question_vector, &encoder().encode(text))))
            .collect();
        for (reference, found) in &cosines {
            assert!((reference - found).abs() < PREFERENCE, "{question}: {cosines:?}");
        }
        assert!(cosines[0].0 - cosines[1].0 > PREFERENCE, "{question} proves nothing");
        for (rank, (reference, found)) in cosines.iter().enumerate() {
            let worse = cosines[rank..].iter().filter(|other| reference - other.0 > PREFERENCE);
            assert!(worse.into_iter().all(|other| found > &other.1), "{question}: {cosines:?}");
        }
    }
}

#[test]
fn every_instruction_set_computes_the_same_vector() {
    let vectors = Isa::available().into_iter().map(|isa| {
        let encoder = SentenceEncoder::load_for(&common::models_dir(), isa).unwrap();
        encoder.encode("Six tokens of text.")
    });
    let vectors: Vec<_> = vectors.collect();
    assert!(vectors.iter().all(|vector| vector == &vectors[0]));
}

#[test]
fn a_text_without_words_has_the_zero_vector() {
    for text in ["", "  \n\t ", "\u{200b}\u{0}\u{301}"] {
        assert_eq!(encoder().encode(text), [0.0; DIMENSIONS], "{text:?}");
    }
}

#[test]
fn unusual_texts_have_vectors() {
    for text in ["?!...", "😀", "ⴰⵣⵓⵍ", "𒀀𒀁", "\u{10ffff}x", "[SEP] [CLS]"] {
        assert_unit_length(&encoder().encode(text));
    }
}

#[test]
fn only_the_first_tokens_of_a_long_text_count() {
    let long = "All work and no play. ".repeat(10_000 / 22 + 1);
    assert!(long.len() >= 10_000);
    assert_eq!(encoder().tokens(&long).len(), sentence_encoder::MAX_TOKENS);
    // 22 sentences have 132 tokens.
    let start = "All work and no play. ".repeat(22);
    let vector = encoder().encode(&long);
    assert_unit_length(&vector);
    assert_eq!(vector, encoder().encode(&start));
    assert_unit_length(&encoder().encode(&"x".repeat(10_000)));
}

#[test]
fn threads_share_an_encoder() {
    let texts = ["When are you open?", "no", "Can I bring my dog?"];
    let alone = texts.map(|text| encoder().encode(text));
    let together = std::thread::scope(|scope| {
        texts.map(|text| scope.spawn(move || encoder().encode(text))).map(|t| t.join().unwrap())
    });
    assert_eq!(alone, together);
}

/// A models' directory of a test, removed when dropped.
struct Copy(PathBuf);

impl Copy {
    /// With links to the files of the model.
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(paths::sentence_encoder(&dir)).unwrap();
        let copy = Self(dir);
        for file in FILES {
            let original = paths::sentence_encoder(&common::models_dir()).join(file);
            std::os::unix::fs::symlink(original.canonicalize().unwrap(), copy.file(file)).unwrap();
        }
        copy
    }

    fn file(&self, name: &str) -> PathBuf {
        paths::sentence_encoder(&self.0).join(name)
    }

    fn replace(&self, name: &str, content: &[u8]) {
        std::fs::remove_file(self.file(name)).unwrap();
        std::fs::write(self.file(name), content).unwrap();
    }

    /// Why the encoder does not load: one sentence that names the file.
    fn error(&self, name: &str) -> String {
        let error = SentenceEncoder::load(&self.0).err().expect("an error");
        assert!(error.contains(self.file(name).to_str().unwrap()), "{error}");
        assert!(error.ends_with("run `make setup`"), "{error}");
        error
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_missing_file_is_named() {
    for file in FILES {
        let copy = Copy::new("encoder-missing");
        std::fs::remove_file(copy.file(file)).unwrap();
        let error = copy.error(file);
        assert!(error.contains("is missing"), "{error}");
        assert_eq!(sentence_encoder::check_installed(&copy.0), Err(error));
    }
    assert!(sentence_encoder::check_installed(Path::new("/nonexistent")).is_err());
}

#[test]
fn damaged_weights_are_an_error() {
    let copy = Copy::new("encoder-weights");
    let whole = std::fs::read(copy.file(FILES[0])).unwrap();
    for length in [0, 7, 100, 20_000, whole.len() - 1] {
        copy.replace(FILES[0], &whole[..length]);
        assert!(copy.error(FILES[0]).contains("is damaged"));
    }
    copy.replace(FILES[0], b"<html>404 Not Found</html>");
    copy.error(FILES[0]);
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut renamed = whole.clone();
    let at = whole[..header].windows(12).position(|name| name == b"layer.5.inte").unwrap();
    renamed[at + 6] = b'9';
    copy.replace(FILES[0], &renamed);
    assert!(copy.error(FILES[0]).contains("layer.5.intermediate"));
    let mut not_finite = whole;
    let end = not_finite.len();
    // The last tensor, which the network does not use, has 590 kB.
    for value in not_finite[header + 4096..end - 1_000_000].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    copy.replace(FILES[0], &not_finite);
    assert!(copy.error(FILES[0]).contains("no number"));
}

#[test]
fn a_damaged_vocabulary_is_an_error() {
    let copy = Copy::new("encoder-vocabulary");
    let whole = std::fs::read(copy.file(FILES[1])).unwrap();
    for content in [&b""[..], b"\xff\xfe", &whole[..100]] {
        copy.replace(FILES[1], content);
        assert!(copy.error(FILES[1]).contains("is damaged"));
    }
    // The vocabulary decides how many rows the weights must have.
    copy.replace(FILES[1], &whole[..whole.len() / 2]);
    assert!(copy.error(FILES[0]).contains("word_embeddings"));
}
