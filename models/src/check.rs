//! State of the built-in models, for `visavis check`.

use std::path::Path;

use crate::tts::{Voice, flite};
use crate::{paths, stt, turn, vad};

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelStatus {
    /// Name: `Silero`, `PocketSphinx`, `flite slt` …
    pub name: String,
    /// Purpose: `vad`, `stt`, `tts`, `turn`.
    pub kind: &'static str,
    /// Whether the model is usable.
    pub ready: bool,
    /// Whether calls work without it.
    pub optional: bool,
    /// Details of the model, or one sentence that says what to install.
    pub detail: String,
}

/// Checks every built-in model; `dir` is the models' directory. VAD, turn model and voices are
/// loaded. The files of both STTs are only checked, because loading them takes half a second. One
/// STT suffices, so PocketSphinx is optional if Moonshine is ready.
#[must_use]
pub fn check(dir: &Path) -> Vec<ModelStatus> {
    let moonshine = stt::moonshine::check_installed(dir).map(|()| "English, offline".to_owned());
    let has_moonshine = moonshine.is_ok();
    let mut all = vec![
        model_status(
            "Silero",
            "vad",
            false,
            vad::Network::load(&paths::vad(dir))
                .map(|n| format!("version 6, {:?}", n.isa()))
                .map_err(|e| e.to_string()),
        ),
        model_status("Moonshine", "stt", true, moonshine),
        model_status(
            "PocketSphinx",
            "stt",
            has_moonshine,
            stt::pocketsphinx::check_installed(dir).map(|()| "US English, offline".to_owned()),
        ),
    ];
    all.extend(Voice::ALL.into_iter().map(|voice| {
        let state = flite::check_installed(voice).map(|()| format!("{} Hz", voice.sample_rate()));
        model_status(&format!("flite {}", voice.name()), "tts", voice != Voice::Slt, state)
    }));
    let runtime = paths::onnx_runtime(dir);
    let state = if runtime.is_file() {
        Ok("for Moonshine and the turn model".to_owned())
    } else {
        Err(format!(
            "{} is missing (needed by Moonshine and the turn model): run `make setup`",
            runtime.display()
        ))
    };
    all.push(model_status("ONNX Runtime", "turn", true, state));
    let state = turn::measure_latency(dir)
        .map(|pace| format!("version 3.2, {} ms per inference", pace.as_millis()));
    all.push(model_status("smart-turn", "turn", true, state));
    all
}

fn model_status(
    name: &str,
    kind: &'static str,
    optional: bool,
    state: Result<String, String>,
) -> ModelStatus {
    let ready = state.is_ok();
    ModelStatus {
        name: name.to_owned(),
        kind,
        ready,
        optional,
        detail: state.unwrap_or_else(|why| why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_lacks_what_set_up_brings_and_says_how_to_get_it() {
        let all = check("no/such/directory".as_ref());
        for name in ["Silero", "Moonshine", "PocketSphinx", "ONNX Runtime", "smart-turn"] {
            let found = all.iter().find(|c| c.name == name).unwrap();
            assert!(!found.ready && found.detail.contains("make setup"), "{found:?}");
        }
        assert_eq!(all.iter().filter(|c| c.kind == "tts").count(), Voice::ALL.len());
    }
}
