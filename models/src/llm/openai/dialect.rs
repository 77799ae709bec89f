//! The differences of servers with OpenAI's chat completions, as data.

use serde_json::{Value, json};
use url::Url;

use crate::hosted::{server_url, with_path};

/// A server, and how it differs from the others.
#[derive(Debug)]
pub struct Dialect {
    /// Names that an agent uses, with lowercase letters and digits only. The first is the usual
    /// one.
    pub providers: &'static [&'static str],
    /// Name in errors.
    pub vendor: &'static str,
    /// Default base URL; empty if the agent must name one.
    pub url: &'static str,
    /// Default model; empty if the agent must name one, or the server has only one.
    pub model: &'static str,
    /// Whether the server requires an API key.
    pub needs_key: bool,
    /// End of the host by which a URL is recognized; empty = never.
    host: &'static str,
    /// Header of the key; `None` = `Authorization: Bearer`.
    pub(super) key_header: Option<&'static str>,
    /// Further headers.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// Name of the limit of tokens.
    pub(super) max_tokens: &'static str,
    /// Whether the server knows `prompt_cache_key`.
    pub(in crate::llm) has_cache_key: bool,
    /// Whether tool calls have signatures of thoughts.
    pub(super) has_signatures: bool,
    /// Whether the server loads a model at its first use, and has Ollama's own API for it.
    loads_models: bool,
    /// Further parameters. The first one of a name that applies to the model is sent.
    parameters: &'static [Parameter],
}

/// A parameter of each request that has a constant value.
#[derive(Debug)]
struct Parameter {
    name: &'static str,
    /// Value as JSON.
    value: &'static str,
    /// Start of the names of the models that get it, without the part before a slash.
    models: &'static str,
    /// Whether the parameter is omitted if the vendor may use the data.
    is_private: bool,
}

const fn of_models(name: &'static str, value: &'static str, models: &'static str) -> Parameter {
    Parameter { name, value, models, is_private: false }
}

const fn private(name: &'static str, value: &'static str) -> Parameter {
    Parameter { name, value, models: "", is_private: true }
}

/// Any server. The others differ from it.
const CUSTOM: Dialect = Dialect {
    providers: &["custom", "openaicompatible"],
    vendor: "the LLM server",
    url: "",
    model: "",
    needs_key: false,
    host: "",
    key_header: None,
    headers: &[],
    max_tokens: "max_tokens",
    has_cache_key: false,
    has_signatures: false,
    loads_models: false,
    parameters: &[],
};

/// Thoughts delay the first word, so models that think do it as little as they can. Versions after
/// 5.0 can be told not to think.
const OPENAI_PARAMETERS: &[Parameter] = &[
    private("store", "false"),
    of_models("reasoning_effort", "\"none\"", "gpt-5."),
    of_models("reasoning_effort", "\"minimal\"", "gpt-5"),
    of_models("reasoning_effort", "\"low\"", "o1"),
    of_models("reasoning_effort", "\"low\"", "o3"),
    of_models("reasoning_effort", "\"low\"", "o4"),
    of_models("verbosity", "\"low\"", "gpt-5"),
];

static DIALECTS: [Dialect; 11] = [
    CUSTOM,
    Dialect {
        providers: &["openai"],
        vendor: "OpenAI",
        url: "https://api.openai.com/v1",
        model: "gpt-4.1-mini",
        needs_key: true,
        host: "api.openai.com",
        max_tokens: "max_completion_tokens",
        has_cache_key: true,
        parameters: OPENAI_PARAMETERS,
        ..CUSTOM
    },
    Dialect {
        providers: &["azure", "azureopenai"],
        vendor: "Azure OpenAI",
        needs_key: true,
        host: "openai.azure.com",
        key_header: Some("api-key"),
        max_tokens: "max_completion_tokens",
        parameters: OPENAI_PARAMETERS,
        ..CUSTOM
    },
    Dialect {
        providers: &["groq"],
        vendor: "Groq",
        url: "https://api.groq.com/openai/v1",
        model: "llama-3.3-70b-versatile",
        needs_key: true,
        host: "api.groq.com",
        max_tokens: "max_completion_tokens",
        parameters: &[
            of_models("reasoning_effort", "\"low\"", "gpt-oss"),
            of_models("reasoning_effort", "\"none\"", "qwen3"),
        ],
        ..CUSTOM
    },
    Dialect {
        providers: &["openrouter"],
        vendor: "OpenRouter",
        url: "https://openrouter.ai/api/v1",
        model: "openai/gpt-4.1-mini",
        needs_key: true,
        host: "openrouter.ai",
        headers: &[("HTTP-Referer", "https://visavis.example"), ("X-Title", "Visavis")],
        // Of the vendors that have the model, the fastest one; by default none that learns from the
        // conversations.
        parameters: &[
            private("provider", r#"{"sort":"latency","data_collection":"deny"}"#),
            of_models("provider", r#"{"sort":"latency"}"#, ""),
        ],
        ..CUSTOM
    },
    Dialect {
        providers: &["together", "togetherai"],
        vendor: "Together",
        url: "https://api.together.xyz/v1",
        model: "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        needs_key: true,
        host: "api.together.xyz",
        ..CUSTOM
    },
    Dialect {
        providers: &["geminiopenai", "googleopenai"],
        vendor: "Google",
        url: "https://generativelanguage.googleapis.com/v1beta/openai",
        model: "gemini-2.5-flash",
        needs_key: true,
        host: "generativelanguage.googleapis.com",
        has_signatures: true,
        parameters: &[
            of_models("reasoning_effort", "\"low\"", "gemini-2.5-pro"),
            of_models("reasoning_effort", "\"none\"", "gemini-2.5"),
            of_models("reasoning_effort", "\"low\"", "gemini-"),
        ],
        ..CUSTOM
    },
    Dialect {
        providers: &["ollama"],
        vendor: "Ollama",
        url: "http://127.0.0.1:11434/v1",
        model: "llama3.2",
        loads_models: true,
        ..CUSTOM
    },
    Dialect { providers: &["vllm"], vendor: "vLLM", url: "http://127.0.0.1:8000/v1", ..CUSTOM },
    Dialect {
        providers: &["llamacpp"],
        vendor: "llama.cpp",
        url: "http://127.0.0.1:8081/v1",
        parameters: &[of_models("cache_prompt", "true", "")],
        ..CUSTOM
    },
    Dialect {
        providers: &["lmstudio"],
        vendor: "LM Studio",
        url: "http://127.0.0.1:1234/v1",
        ..CUSTOM
    },
];

/// The dialect of a provider that an agent names, with its default URL and model. Only letters and
/// digits count, and their case does not.
#[must_use]
pub fn dialect(provider: &str) -> Option<&'static Dialect> {
    let letters = provider.chars().filter(|c| c.is_alphanumeric());
    let name: String = letters.flat_map(char::to_lowercase).collect();
    DIALECTS.iter().find(|dialect| dialect.providers.contains(&name.as_str()))
}

/// The dialect of a provider at a base URL (empty = its own one), and the model of agents that name
/// none; empty = the server's own. A provider's name may stand for a proxy, so the address decides
/// if it is one of a vendor.
#[must_use]
pub fn dialect_at(provider: &str, url: &str) -> (&'static Dialect, &'static str) {
    let named = dialect(provider);
    let default_url = named.map_or("", |dialect| dialect.url);
    let url = if url.is_empty() { default_url } else { url };
    let of_url = Dialect::of_url(url);
    let is_named = url == default_url || of_url.url.is_empty();
    let dialect = named.filter(|_| is_named).unwrap_or(of_url);
    (dialect, if url == dialect.url { dialect.model } else { "" })
}

impl Dialect {
    /// The dialect of the server at `url`, which its host decides.
    #[must_use]
    pub fn of_url(url: &str) -> &'static Self {
        let url = Url::parse(url.trim()).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let known = |dialect: &&Self| {
            let before = host.strip_suffix(dialect.host).filter(|_| !dialect.host.is_empty());
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        DIALECTS.iter().find(known).unwrap_or(&DIALECTS[0])
    }

    /// This dialect, or OpenAI's if the server is not known.
    pub(in crate::llm) fn or_openai(&'static self) -> &'static Self {
        let [custom, openai, ..] = &DIALECTS;
        if std::ptr::eq(self, custom) { openai } else { self }
    }

    /// The constant parameters of a request to `model`. `share_data`: the vendor may store and use
    /// the conversation.
    pub(in crate::llm) fn parameters(
        &self,
        model: &str,
        share_data: bool,
    ) -> impl Iterator<Item = (&'static str, Value)> {
        let model = model.rsplit('/').next().unwrap_or_default().to_lowercase();
        self.parameters
            .iter()
            .filter(move |p| model.starts_with(p.models) && !(share_data && p.is_private))
            .filter_map(|p| Some((p.name, serde_json::from_str(p.value).ok()?)))
    }

    /// The request that makes the server at `base` load `model`, if it loads models on demand.
    pub(super) fn load(&self, base: &str, model: &str) -> Option<(Url, Value)> {
        if !self.loads_models || model.is_empty() {
            return None;
        }
        let url = server_url(base, &["/v1/chat/completions", "/v1"])?;
        let body = json!({"model": model, "prompt": "", "stream": false, "keep_alive": "30m"});
        Some((with_path(url, "api/generate"), body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_hosts_select_a_dialect() {
        for (name, vendor) in [
            ("OpenAI", "OpenAI"),
            ("open-router", "OpenRouter"),
            ("llama.cpp", "llama.cpp"),
            ("LM Studio", "LM Studio"),
            ("custom", "the LLM server"),
        ] {
            assert_eq!(dialect(name).unwrap().vendor, vendor, "{name}");
        }
        assert!(dialect("").is_none() && dialect("anthropic").is_none());
        for (url, vendor) in [
            ("https://api.groq.com/openai/v1", "Groq"),
            ("https://r.openai.azure.com/openai/v1?api-version=preview", "Azure OpenAI"),
            ("http://127.0.0.1:8000/v1", "the LLM server"),
            ("https://eu.api.openai.com/v1", "OpenAI"),
            ("https://notopenrouter.ai/v1", "the LLM server"),
            ("https://llm.example.com/api.groq.com/v1", "the LLM server"),
            ("nonsense", "the LLM server"),
        ] {
            assert_eq!(Dialect::of_url(url).vendor, vendor, "{url}");
        }
        for dialect in &DIALECTS {
            let own = Dialect::of_url(dialect.url);
            assert!(dialect.host.is_empty() || dialect.url.is_empty() || own.url == dialect.url);
        }
    }

    #[test]
    fn every_name_is_unique_and_every_value_is_json() {
        let mut names: Vec<&str> = DIALECTS.iter().flat_map(|d| d.providers).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for parameter in DIALECTS.iter().flat_map(|dialect| dialect.parameters) {
            let value: Result<Value, _> = serde_json::from_str(parameter.value);
            assert!(value.is_ok(), "{parameter:?}");
        }
    }

    #[test]
    fn the_first_parameter_of_a_name_that_fits_the_model_is_first() {
        let effort = |provider: &str, model: &str| {
            let mut parameters = dialect(provider).unwrap().parameters(model, false);
            parameters.find(|(name, _)| *name == "reasoning_effort").map(|(_, value)| value)
        };
        assert_eq!(effort("openai", "gpt-5.1-mini"), Some(json!("none")));
        assert_eq!(effort("openai", "gpt-5-mini"), Some(json!("minimal")));
        assert_eq!(effort("openai", "o4-mini"), Some(json!("low")));
        assert_eq!(effort("openai", "gpt-4.1-mini"), None);
        assert_eq!(effort("groq", "openai/gpt-oss-20b"), Some(json!("low")));
        assert_eq!(effort("geminiopenai", "gemini-2.5-flash"), Some(json!("none")));
        assert_eq!(effort("geminiopenai", "gemini-3-flash-preview"), Some(json!("low")));
    }
}
