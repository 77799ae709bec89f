//! Stop words: words with which a user asks the agent to be silent. A turn that begins with one
//! ends the agent's reply as soon as the STT recognizes it. It does not wait for a minimum duration
//! of speech or for the final transcript.

use unicode_normalization::UnicodeNormalization as _;

use crate::words::{is_ideograph, normalize_text};

/// Stop words by language (ISO 639-1), in lower case and without punctuation.
const STOP_WORDS: [(&str, &[&str]); 11] = [
    (
        "en",
        &[
            "stop",
            "wait",
            "hold on",
            "hang on",
            "hold it",
            "one moment",
            "one second",
            "just a moment",
            "just a second",
            "be quiet",
            "quiet",
            "shut up",
            "enough",
            "thats enough",
            "pause",
        ],
    ),
    (
        "de",
        &[
            "stopp",
            "stop",
            "halt",
            "warte",
            "warten sie",
            "moment",
            "einen moment",
            "sei still",
            "ruhe",
            "genug",
            "aufhören",
            "hör auf",
            "pause",
        ],
    ),
    (
        "fr",
        &[
            "stop",
            "arrête",
            "arrêtez",
            "attends",
            "attendez",
            "un instant",
            "un moment",
            "tais toi",
            "silence",
            "ça suffit",
            "pause",
        ],
    ),
    (
        "es",
        &[
            "para",
            "pare",
            "alto",
            "espera",
            "espere",
            "un momento",
            "detente",
            "basta",
            "silencio",
            "pausa",
        ],
    ),
    (
        "it",
        &[
            "stop",
            "fermo",
            "fermati",
            "aspetta",
            "aspetti",
            "un momento",
            "basta",
            "silenzio",
            "pausa",
        ],
    ),
    ("pt", &["para", "pare", "espera", "espere", "um momento", "chega", "silêncio", "pausa"]),
    ("nl", &["stop", "wacht", "wacht even", "een moment", "stil", "genoeg", "pauze"]),
    ("pl", &["stop", "stój", "czekaj", "poczekaj", "chwileczkę", "dość", "cisza", "pauza"]),
    ("hi", &["रुको", "रुकिए", "ठहरो", "ठहरिए", "बस", "एक मिनट", "चुप"]),
    ("ja", &["ストップ", "止めて", "やめて", "待って", "ちょっと待って", "静かに"]),
    ("zh", &["停", "停下", "等等", "等一下", "别说了", "安静"]),
];

/// The stop words for a language tag such as `en` or `de-AT`. A language without an entry gets the
/// English ones.
#[must_use]
pub(crate) fn stop_words_for(language: &str) -> Vec<String> {
    let primary = language.split(['-', '_']).next().unwrap_or_default().to_lowercase();
    let of = |wanted: &str| {
        STOP_WORDS.iter().find(|(language, _)| *language == wanted).map(|(_, words)| *words)
    };
    of(&primary)
        .or_else(|| of("en"))
        .unwrap_or_default()
        .iter()
        .map(|word| (*word).to_owned())
        .collect()
}

/// Whether a transcript begins with one of these words, as a whole word. The words are in the form
/// of [`stop_words_for`]. A script without spaces does not mark the end of a word, so there a
/// prefix is enough.
pub(crate) fn begins_with_stop_word(stop_words: &[String], text: &str) -> bool {
    let plain = normalize_for_comparison(text);
    stop_words.iter().any(|word| {
        let rest = plain.strip_prefix(word.as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(' ') || word.chars().all(is_ideograph)
        })
    })
}

/// The form in which stop words and transcripts are compared. A hyphen or dash separates words, so
/// "Tais-toi" equals "tais toi", and "stop—please" begins with "stop". Accents are composed, as
/// some STT engines write them as separate characters, which would count as punctuation.
fn normalize_for_comparison(text: &str) -> String {
    // Each transcript is compared, interim ones too, so the common case does no more than
    // necessary.
    if text.is_ascii() && !text.contains('-') {
        return normalize_text(text);
    }
    normalize_text(&text.nfc().map(|c| if is_dash(c) { ' ' } else { c }).collect::<String>())
}

/// Whether the character is a hyphen, a dash or a minus sign.
fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_word_stands_first_and_whole() {
        let english = stop_words_for("en-GB");
        for text in
            ["Stop!", "stop", "Stop now, please.", "Wait", "Hold on a second", "That's enough."]
        {
            assert!(begins_with_stop_word(&english, text), "{text}");
        }
        for text in ["", "Stopping is hard", "Do not stop", "waiter", "hold", "Please wait", "…"]
        {
            assert!(!begins_with_stop_word(&english, text), "{text}");
        }
        assert!(
            begins_with_stop_word(&stop_words_for("de"), "Warten Sie, bitte")
                && !begins_with_stop_word(&stop_words_for("de"), "wait")
        );
        assert!(
            begins_with_stop_word(&stop_words_for("zh-CN"), "停一下")
                && begins_with_stop_word(&stop_words_for("ja"), "待ってください")
        );
        assert_eq!(stop_words_for("tlh"), english);
        assert!(!begins_with_stop_word(&[], "stop"));
    }

    #[test]
    fn a_hyphen_separates_words_and_an_accent_may_be_a_character_of_its_own() {
        let french = stop_words_for("fr");
        for text in [
            "Tais-toi !",
            "tais toi",
            "Tais\u{2010}toi",
            "Tais\u{2011}toi",
            "Arrête-toi",
            "Stop-stop",
            "Stop—attends",
            "Arre\u{302}te",
            "ARRE\u{302}TE",
            "C\u{327}a suffit",
        ] {
            assert!(begins_with_stop_word(&french, text), "{text}");
        }
        for text in ["Taistoi", "Tais", "-", "Arretes", "Non-stop"] {
            assert!(!begins_with_stop_word(&french, text), "{text}");
        }
        assert!(begins_with_stop_word(&stop_words_for("ja"), "ストッフ\u{309a}"));
    }

    #[test]
    fn every_stop_word_is_as_a_transcript_reads_without_its_signs() {
        for (language, all) in STOP_WORDS {
            for word in all {
                assert_eq!(normalize_for_comparison(word), *word, "{language}");
            }
        }
    }
}
