//! Measures the accuracy of lip motion that is inferred from audio. `lips FOLDER` reads
//! `FOLDER/VOICE/N.json` (`{"rate": Hz, "phones": [[name, end in seconds], …]}`) and `N.pcm` (mono,
//! 16 bits, little-endian). It prints a JSON object with the scores of each voice, which
//! `scripts/lips/train.py` reads.
#![allow(clippy::print_stdout)] // the program's output
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the program")]

#[path = "../tests/support/lips.rs"]
mod lips;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::show::visemes::Viseme;
use models::tts::Phone;
use serde_json::{Value, json};

type BoxError = Box<dyn std::error::Error>;

fn main() -> Result<(), BoxError> {
    let folder = std::env::args().nth(1).ok_or("usage: lips FOLDER")?;
    let mut scores = BTreeMap::new();
    for voice in list_entries(Path::new(&folder))? {
        let name = voice.file_name().unwrap_or_default().to_string_lossy().into_owned();
        scores.insert(name, score_voice(&voice)?);
    }
    println!("{}", json!(scores));
    Ok(())
}

fn list_entries(folder: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let mut all = std::fs::read_dir(folder)?
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    all.sort();
    Ok(all)
}

#[derive(serde::Deserialize)]
struct Recording {
    rate: u32,
    phones: Vec<(String, f32)>,
}

fn score_voice(voice: &Path) -> Result<Value, BoxError> {
    let mut comparison = lips::LipComparison::default();
    for file in list_entries(voice)?.iter().filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let about: Recording = serde_json::from_slice(&std::fs::read(file)?)?;
        let bytes = std::fs::read(file.with_extension("pcm"))?;
        let pcm: Vec<i16> = bytes.as_chunks().0.iter().map(|b| i16::from_le_bytes(*b)).collect();
        let spoken: Vec<Phone> =
            about.phones.into_iter().map(|(name, end)| Phone::new(name, end)).collect();
        comparison.add(&spoken, &lips::phones_from_audio(&pcm, about.rate));
    }
    let (closures, closed) = comparison.count_closures();
    let counts = comparison.viseme_counts();
    let visemes: BTreeMap<String, (usize, usize)> =
        Viseme::ALL.iter().zip(counts).map(|(v, c)| (format!("{v:?}"), c)).collect();
    Ok(json!({
        "seconds": comparison.seconds(),
        "jaw": comparison.jaw_correlation(0.0),
        "lag": comparison.lag(),
        "closures": closures,
        "closed": closed,
        "invented": comparison.false_closures(),
        "visemes": visemes,
    }))
}
