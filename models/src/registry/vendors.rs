//! The vendors of hosted models: their names, and the environment variables of their keys.

use std::fmt;

/// A part of a call that a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Speech to text.
    Stt,
    /// Language model.
    Llm,
    /// Text to speech.
    Tts,
}

impl Kind {
    /// `stt`, `llm` or `tts`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stt => "stt",
            Self::Llm => "llm",
            Self::Tts => "tts",
        }
    }
}

impl fmt::Display for Kind {
    /// For sentences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stt => "speech-to-text",
            Self::Llm => "LLM",
            Self::Tts => "text-to-speech",
        })
    }
}

/// A vendor, or a server that people run themselves.
#[derive(Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Name that agents and the configuration use.
    pub name: &'static str,
    /// Name for people.
    pub display_name: &'static str,
    /// Further names that agents use, with lowercase letters and digits only.
    aliases: &'static [&'static str],
    /// Starts of the environment variables, the usual one first.
    variables: &'static [&'static str],
    /// Whether it requires an API key.
    pub needs_key: bool,
    /// What it serves. The configured model is one of the first kind.
    pub kinds: &'static [Kind],
}

use Kind::{Llm, Stt, Tts};

/// All vendors.
pub static VENDORS: [Vendor; 15] = [
    vendor("deepgram", "Deepgram", &[], &["DEEPGRAM"], &[Stt, Tts]),
    vendor("assemblyai", "AssemblyAI", &["aai"], &["ASSEMBLYAI"], &[Stt]),
    vendor(
        "elevenlabs",
        "ElevenLabs",
        &["11labs", "eleven"],
        &["ELEVENLABS", "ELEVEN"],
        &[Tts, Stt],
    ),
    vendor("cartesia", "Cartesia", &[], &["CARTESIA"], &[Tts]),
    vendor("openai", "OpenAI", &[], &["OPENAI"], &[Llm, Stt, Tts]),
    vendor("anthropic", "Anthropic", &["claude"], &["ANTHROPIC"], &[Llm]),
    vendor("google", "Google Gemini", &["gemini"], &["GEMINI", "GOOGLE"], &[Llm]),
    vendor("groq", "Groq", &[], &["GROQ"], &[Llm, Stt]),
    vendor("openrouter", "OpenRouter", &[], &["OPENROUTER"], &[Llm]),
    vendor("together", "Together", &["togetherai"], &["TOGETHER"], &[Llm]),
    local("ollama", "Ollama", &["OLLAMA"]),
    local("vllm", "vLLM", &["VLLM"]),
    local("llamacpp", "llama.cpp", &["LLAMACPP"]),
    local("lmstudio", "LM Studio", &["LMSTUDIO"]),
    Vendor {
        name: CUSTOM,
        display_name: "the OpenAI-compatible server",
        aliases: &["openaicompatible"],
        variables: &[],
        needs_key: false,
        kinds: &[Llm, Stt, Tts],
    },
];

/// Any server with OpenAI's interface, whose address the agent or the configuration names.
pub(super) const CUSTOM: &str = "custom";

const fn vendor(
    name: &'static str,
    display_name: &'static str,
    aliases: &'static [&'static str],
    variables: &'static [&'static str],
    kinds: &'static [Kind],
) -> Vendor {
    Vendor { name, display_name, aliases, variables, needs_key: true, kinds }
}

const fn local(
    name: &'static str,
    display_name: &'static str,
    variables: &'static [&'static str],
) -> Vendor {
    Vendor { name, display_name, aliases: &[], variables, needs_key: false, kinds: &[Llm] }
}

impl Vendor {
    /// The vendor with this name. Only letters and digits count, and their case does not.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = super::normalize_name(name);
        VENDORS.iter().find(|vendor| vendor.name == name || vendor.aliases.contains(&&*name))
    }

    /// The vendor of the provider that an agent names: a further interface of a vendor is a provider
    /// of its own, and uses the same account.
    #[must_use]
    pub fn of_provider(provider: &str) -> Option<&'static Self> {
        match super::normalize_name(provider).as_str() {
            "openairesponses" => Self::find("openai"),
            "geminiopenai" | "googleopenai" => Self::find("google"),
            "azure" | "azureopenai" => Self::find(CUSTOM),
            name => Self::find(name),
        }
    }

    /// Whether it serves `kind`.
    #[must_use]
    pub fn serves(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The first of its environment variables that end in `end` and are set.
    pub(super) fn variable(
        &self,
        end: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let set = |start: &&str| {
            let value = variable(&format!("{start}_{end}"))?.trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        self.variables.iter().find_map(set)
    }

    /// Names of its environment variables that end in `end`, the usual one first.
    pub fn variable_names(&self, end: &str) -> impl Iterator<Item = String> {
        self.variables.iter().map(move |start| format!("{start}_{end}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_found_by_all_their_names() {
        for (name, expected) in [
            ("Deepgram", "deepgram"),
            ("eleven_labs", "elevenlabs"),
            ("11labs", "elevenlabs"),
            ("Gemini", "google"),
            ("claude", "anthropic"),
            ("LM Studio", "lmstudio"),
        ] {
            assert_eq!(Vendor::find(name).map(|vendor| vendor.name), Some(expected), "{name}");
        }
        assert_eq!(Vendor::find("nobody"), None);
        assert_eq!(Vendor::find("openai-responses"), None);
        for (name, expected) in [
            ("openai-responses", "openai"),
            ("Gemini OpenAI", "google"),
            ("azure", "custom"),
            ("claude", "anthropic"),
        ] {
            assert_eq!(Vendor::of_provider(name).map(|v| v.name), Some(expected), "{name}");
        }
        assert_eq!(Vendor::find(""), None);
    }

    #[test]
    fn names_are_normalized_and_unique() {
        let names =
            VENDORS.iter().flat_map(|v| [v.name].into_iter().chain(v.aliases.iter().copied()));
        let mut all: Vec<&str> = names.collect();
        assert!(all.iter().all(|name| super::super::normalize_name(name) == *name));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_second_variable_counts_if_the_first_one_is_not_set() {
        let google = Vendor::find("google").unwrap();
        let of = |pairs: &[(&str, &str)]| {
            google.variable("API_KEY", |name| {
                pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            })
        };
        assert_eq!(of(&[("GOOGLE_API_KEY", " k ")]), Some("k".into()));
        assert_eq!(of(&[("GOOGLE_API_KEY", "k"), ("GEMINI_API_KEY", "g")]), Some("g".into()));
        assert_eq!(of(&[("GEMINI_API_KEY", " ")]), None);
        let names: Vec<String> = google.variable_names("API_KEY").collect();
        assert_eq!(names, ["GEMINI_API_KEY", "GOOGLE_API_KEY"]);
    }
}
