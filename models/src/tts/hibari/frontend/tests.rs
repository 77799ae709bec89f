//! The front end with its real dictionaries, tagger and network for unknown words.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::super::speaker::TextModel;

#[derive(Deserialize)]
struct Expected {
    phonemes: String,
}

fn models_dir() -> PathBuf {
    let named = std::env::var_os(crate::paths::MODELS_DIR_VARIABLE).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        tests.join("../..").join(crate::paths::DEFAULT_MODELS_DIR)
    })
}

fn text_model() -> TextModel {
    TextModel::load(&models_dir()).unwrap_or_else(|why| panic!("{why}"))
}

fn phonemes(model: &TextModel, text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    model.symbols(&words).iter().map(|symbol| symbol.symbol).collect()
}

#[test]
fn phonemes_equal_the_reference() {
    let expected: BTreeMap<String, Expected> =
        serde_json::from_str(include_str!("../../../../tests/hibari/expected.json")).unwrap();
    assert!(expected.len() >= 40);
    let model = text_model();
    let mut different = Vec::new();
    for (sentence, Expected { phonemes: reference }) in &expected {
        let own = phonemes(&model, sentence);
        if own != *reference {
            different.push(format!("{sentence}\n  {own}\n  {reference}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
