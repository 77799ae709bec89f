//! Names of the built-in voices.

/// The voice of Hibari: female, American English.
pub const HEART: &str = "heart";

/// A voice of flite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// Female, American English: the default.
    Slt,
    /// Male, American English.
    Rms,
    /// Male, Scottish English.
    Awb,
    /// Male, American English: robotic, with a twentieth of the CPU time of the others.
    Kal16,
    /// As [`Voice::Kal16`], in telephone quality.
    Kal,
}

impl Voice {
    /// All voices, the default first.
    pub const ALL: [Self; 5] = [Self::Slt, Self::Rms, Self::Awb, Self::Kal16, Self::Kal];

    /// Name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slt => "slt",
            Self::Rms => "rms",
            Self::Awb => "awb",
            Self::Kal16 => "kal16",
            Self::Kal => "kal",
        }
    }

    /// Sample rate in Hz.
    #[must_use]
    pub fn sample_rate(self) -> u32 {
        if self == Self::Kal { 8_000 } else { 16_000 }
    }
}

/// Whether Hibari has a voice of this name, in any case.
pub(super) fn is_hibari_voice(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case(HEART)
}

/// Whether flite has a voice of this name.
pub(super) fn is_flite_voice(name: &str) -> bool {
    !name.trim().is_empty() && resolve_voice(name).1.is_none()
}

/// Whether an avatar may name this voice.
///
/// # Errors
/// One clause that lists the built-in voices.
pub fn check_builtin_voice(name: &str) -> Result<(), String> {
    if builtin_provider_has("", name) {
        return Ok(());
    }
    let flite = Voice::ALL.map(Voice::name).join(", ");
    Err(format!("must be one of {HEART}, {flite}"))
}

/// Whether a built-in provider has a voice: `hibari`, `flite`, or any other name for both.
#[must_use]
pub fn builtin_provider_has(provider: &str, voice: &str) -> bool {
    match provider.trim().to_ascii_lowercase().as_str() {
        "hibari" => is_hibari_voice(voice),
        "flite" => is_flite_voice(voice),
        _ => is_hibari_voice(voice) || is_flite_voice(voice),
    }
}

/// The voice of flite of this name (`slt` or `cmu_us_slt`, in any case; empty = the default). An unknown
/// name becomes the default voice, with a sentence that reports it.
#[must_use]
pub fn resolve_voice(name: &str) -> (Voice, Option<String>) {
    let requested = name.trim().to_ascii_lowercase();
    let short = requested.strip_prefix("cmu_us_").unwrap_or(&requested);
    if short.is_empty() {
        return (Voice::Slt, None);
    }
    match Voice::ALL.into_iter().find(|voice| voice.name() == short) {
        Some(voice) => (voice, None),
        None => {
            (Voice::Slt, Some(format!("the voice {name:?} is not built in: slt is used instead")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_voice_is_found_by_its_name() {
        for voice in Voice::ALL {
            assert_eq!(resolve_voice(voice.name()), (voice, None));
            assert_eq!(resolve_voice(&format!("CMU_US_{}", voice.name())), (voice, None));
        }
        assert_eq!(resolve_voice(" "), (Voice::Slt, None));
    }

    #[test]
    fn an_avatar_may_name_the_built_in_voices() {
        assert!(
            ["heart", "Heart ", "slt", "cmu_us_awb"].iter().all(|v| check_builtin_voice(v).is_ok())
        );
        let why = check_builtin_voice("Joanna").unwrap_err();
        assert_eq!(why, "must be one of heart, slt, rms, awb, kal16, kal");
        for (provider, voice, has) in [
            ("flite", "heart", false),
            ("Hibari", "heart", true),
            ("hibari", "slt", false),
            ("flite", "slt", true),
            ("builtin", "slt", true),
            ("", "heart", true),
        ] {
            assert_eq!(builtin_provider_has(provider, voice), has, "{provider} {voice}");
        }
        assert!(check_builtin_voice(" ").is_err() && !is_flite_voice("heart"));
    }

    #[test]
    fn an_unknown_voice_falls_back_and_says_so() {
        let (voice, warning) = resolve_voice("Joanna");
        assert_eq!(voice, Voice::Slt);
        assert!(warning.is_some_and(|w| w.contains("Joanna") && w.contains("slt")));
    }
}
