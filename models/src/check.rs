//! State of the built-in models, for `visavis check`.

use std::path::Path;

use crate::tts::{Voice, flite, hibari};
use crate::{manifest, paths, stt, turn, vad};

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelStatus {
    /// Name: `Silero VAD`, `PocketSphinx`, `flite slt` …
    pub name: String,
    /// Purpose: `vad`, `stt`, `tts`, `turn`, `face`, `lib`.
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
        installed_status(
            "silero",
            "vad",
            false,
            vad::Network::load(&paths::vad(dir))
                .map(|n| format!("version 6, {:?}", n.isa()))
                .map_err(|e| e.to_string()),
        ),
        installed_status("moonshine-tiny-en", "stt", true, moonshine),
        installed_status(
            "pocketsphinx",
            "stt",
            has_moonshine,
            stt::pocketsphinx::check_installed(dir).map(|()| "US English, offline".to_owned()),
        ),
    ];
    all.extend(Voice::ALL.into_iter().map(|voice| {
        let state = flite::check_installed(voice).map(|()| format!("{} Hz", voice.sample_rate()));
        model_status(&format!("flite {}", voice.name()), "tts", voice != Voice::Slt, state)
    }));
    let hibari = hibari::check_installed(dir)
        .map(|()| format!("{}, {} Hz", hibari::VOICES[0].name, hibari::SAMPLE_RATE));
    all.push(installed_status("hibari", "tts", true, hibari));
    let encoder = manifest::model("minilm").check_files(dir);
    let state = encoder.map(|()| "for the built-in answerer".to_owned());
    all.push(installed_status("minilm", "llm", true, state));
    let landmarks = manifest::model("mediapipe").check_files(dir);
    let state = landmarks.map(|()| "for avatars from a photo".to_owned());
    all.push(installed_status("mediapipe", "face", true, state));
    let runtime = manifest::model("onnxruntime");
    let state = runtime.check_files(dir).map(|()| format!("for {}", runtime.needed_by.join(", ")));
    all.push(installed_status("onnxruntime", "lib", true, state));
    let state = turn::measure_latency(dir)
        .map(|pace| format!("version 3.2, {} ms per inference", pace.as_millis()));
    all.push(installed_status("smart-turn", "turn", true, state));
    all
}

/// The row of a model of the manifest, with its package and license.
fn installed_status(
    folder: &str,
    kind: &'static str,
    optional: bool,
    state: Result<String, String>,
) -> ModelStatus {
    let model = manifest::model(folder);
    let state = state
        .map(|detail| format!("{detail} ({} {}, {})", model.package, model.version, model.license))
        .map_err(|why| match &model.without {
            Some(without) => format!("{why} (without it, {without})"),
            None => why,
        });
    model_status(&model.name, kind, optional, state)
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
        for name in [
            "Silero VAD",
            "Moonshine",
            "PocketSphinx",
            "Hibari",
            "MiniLM",
            "MediaPipe",
            "ONNX Runtime",
            "smart-turn",
        ] {
            let found = all.iter().find(|c| c.name == name).unwrap();
            assert!(!found.ready && found.detail.contains("make setup"), "{found:?}");
        }
        assert_eq!(all.iter().filter(|c| c.kind == "tts").count(), Voice::ALL.len() + 1);
    }
}
