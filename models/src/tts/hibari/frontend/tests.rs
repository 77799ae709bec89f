//! The front end with its real dictionaries, tagger and network for unknown words.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Deserialize;

use super::super::speaker::TextModel;

#[derive(Deserialize)]
struct Expected {
    phonemes: String,
}

/// The models' directory: that of the environment variable, else that of the checkout.
pub(in crate::tts::hibari) fn models_dir() -> PathBuf {
    let named = std::env::var_os(crate::paths::MODELS_DIR_VARIABLE).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        tests.join("../..").join(crate::paths::DEFAULT_MODELS_DIR)
    })
}

/// The model of all tests.
fn text_model() -> &'static TextModel {
    static MODEL: OnceLock<TextModel> = OnceLock::new();
    MODEL.get_or_init(|| TextModel::load(&models_dir()).unwrap_or_else(|why| panic!("{why}")))
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
        let own = phonemes(model, sentence);
        if own != *reference {
            different.push(format!("{sentence}\n  {own}\n  {reference}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[track_caller]
fn check(table: &[(&str, &str)]) {
    let model = text_model();
    for (text, expected) in table {
        assert_eq!(phonemes(model, text), *expected, "{text}");
    }
}

#[test]
fn the_part_of_speech_selects_the_sound_of_heteronyms() {
    check(&[
        ("I read it.", "ˌI ɹˈɛd ɪt."),
        ("I will read it.", "ˌI wɪl ɹˈid ɪt."),
        ("I have read it.", "ˌI hæv ɹˈɛd ɪt."),
        ("We live here.", "wˌi lˈɪv hˈɪɹ."),
        ("A live show.", "ɐ lˈIv ʃˈO."),
        ("They record a record.", "ðˌA ɹəkˈɔɹd ɐ ɹˈɛkəɹd."),
        ("It is of no use.", "ˌɪt ɪz ʌv nˈO jˈus."),
        ("I use it.", "ˌI jˈuz ɪt."),
        ("He used to go.", "hˌi jˈust tə ɡˌO."),
        ("I used it.", "ˌI jˈuzd ɪt."),
        ("Close the door, it is close.", "klˈOz ðə dˈɔɹ, ɪt ɪz klˈOs."),
        ("The wind. Wind it up.", "ðə wˈɪnd. wˈInd ɪt ˌʌp."),
        ("the excuse, excuse me", "ði ɪkskjˈus, ɪkskjˈuz mˌi"),
        ("A tear in my eye. Tear it.", "ɐ tˈɪɹ ɪn mI ˈI. tˈɛɹ ɪt."),
    ]);
}

#[test]
fn initialisms_names_and_unknown_words_have_a_sound() {
    check(&[
        ("GPU API LLM", "ʤˌipˌijˈu ˌApˌiˈI ˌɛlˌɛlˈɛm"),
        ("NATO UNESCO", "nˈATO junˈɛskO"),
        ("GitHub YouTube iOS", "ɡˌɪthˈʌb jˈutˌub ˌIOˈɛs"),
        ("the U.S. and the U.K.", "ðə jˌuˈɛs ænd ðə jˌukˈA."),
        ("Ph.D.", "pˌiˌAʧdˈi."),
        ("well-known twenty-one", "wˌɛlnˈOn twˌɛntiwˈʌn"),
        ("Visavis's nginx", "vˈɪsəvˌɪsᵻz ˈɛnʤən ˈɛks"),
        ("Anthropic Hibari", "ænθɹˈɑpɪk hɪbˈɑɹɹi"),
        ("Zürich café naïve", "zˈuɹɪʧ kæfˈA nIˈiv"),
        ("I'd've shouldn't've", "ˌIdəv ʃˈʊdᵊntəv"),
        ("y'all ain't o'clock", "jˈɔl ˈAnt əklˈɑk"),
        ("hmm, uh-huh", "hmm, əhˈʌ"),
        ("the α test", "ði ˈælfə tˈɛst"),
    ]);
}

#[test]
fn quantities_are_spoken() {
    check(&[
        ("$3.50 at 5 p.m.", "θɹˈi dˈɑləɹz ænd fˈɪfti sˈɛnts æt fˈIv pˌiˈɛm."),
        ("2026-11-26", "nOvˈɛmbəɹ twˈɛnti sˈɪksθ, twˈɛnti twˈɛnti sˈɪks"),
        ("info@example.com", "ˈɪnfO æt ɪɡzˈæmpəl dˈɑt kˈɑm"),
        ("+1 555 0100", "plˈʌs wˈʌn, fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn zˈɪɹO zˈɪɹO"),
        ("10–12 GB", "tˈɛn tə twˈɛlv ɡˈɪɡəbˌIts"),
    ]);
}

#[test]
fn other_scripts_and_emoji_are_silent() {
    check(&[("", ""), ("Привет Ελλάδα 東京 שלום", ""), ("👍 🎉", ""), ("Hi 👍!", "hˈI!")]);
}

#[test]
fn every_written_word_owns_its_symbols() {
    let model = text_model();
    let words = ["It's", "👍", "$5", "well-known", "—", "now."].map(str::to_owned);
    let symbols = model.symbols(&words);
    let of = |word| -> String {
        symbols.iter().filter(|symbol| symbol.word == word).map(|s| s.symbol).collect()
    };
    let found: Vec<String> = (0..words.len()).map(of).collect();
    assert_eq!(found, ["ˌɪts ", "", "fˈIv dˈɑləɹz ", "wˌɛlnˈOn ", "— ", "nˈW."]);
}
