//! The language model of an agent: its providers in the order in which they are tried.

use std::sync::Arc;
use std::time::Duration;

use engine_api::LlmChoice;

use super::unserved::Unserved;
use super::vendors::{Kind, Vendor};
use super::{Access, BUILTIN, Registry, WithWarning, ignored_options, normalize_name};
use super::{non_empty, truncate_for_message};
use crate::chain::{ChainEntry, LlmChain, NamedLlm};
use crate::llm::anthropic::{self, Anthropic};
use crate::llm::builtin::BuiltinLlm;
use crate::llm::gemini::{self, Gemini};
use crate::llm::openai::{self, OpenAi};
use crate::llm::responses::{self, OpenAiResponses};
use crate::llm::{Config, Llm, Timeouts};

/// Time to the first token, for all providers of a chain together: less than the 5 s after which the
/// conversation gives up, so that the last one can answer or say why it does not.
pub(super) const FIRST_TOKEN_TIME: Duration = Duration::from_millis(4_800);

/// Default time between tokens: less than the 5 s after which the conversation cancels the request,
/// so that the stall is a failure of the provider.
const TOKEN_GAP: Duration = Duration::from_millis(4_800);

/// Protocol of a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    ChatCompletions,
    Responses,
    Anthropic,
    Gemini,
}

impl Registry {
    /// The language model for `choice`. With `fallback`, the model to use after the first one
    /// failed, without a warning: that of the first model is about the fallbacks, too. The result
    /// knows its model name: leave [`crate::llm::Request::model`] empty.
    pub fn llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn Llm>> {
        let mut choices = expand(choice);
        if choice.provider.trim().is_empty() {
            let defaults = self.default_choices(choice);
            choices = if defaults.is_empty() { vec![builtin_choice()] } else { defaults };
        }
        let first = usize::from(fallback && choices.len() > 1);
        let (mut entries, mut unserved) = (Vec::new(), Unserved::default());
        let limit = FIRST_TOKEN_TIME / (choices.len() - first).max(1) as u32;
        for choice in &choices[first..] {
            match self.llm_entry(choice, agent_name, limit) {
                Ok((entry, note)) => {
                    unserved.served(&entry.name, note);
                    entries.push(entry);
                }
                Err(why) => unserved.refused(why),
            }
        }
        let mut last = "the built-in answerer";
        if entries.is_empty() {
            let defaults = self.default_choices(choice);
            let default =
                defaults.iter().find_map(|c| self.llm_entry(c, agent_name, FIRST_TOKEN_TIME).ok());
            entries.push(match default {
                Some((entry, _)) => {
                    last = "the server's own language model";
                    entry
                }
                None => self.builtin_entry(agent_name),
            });
        }
        // The choices of a fallback are told with the first model.
        let warning = unserved.finish(last).filter(|_| !fallback);
        match entries.pop() {
            Some(only) if entries.is_empty() && only.breaker.is_none() => {
                (Arc::new(NamedLlm(only)), warning)
            }
            last => {
                entries.extend(last);
                (Arc::new(LlmChain::new(entries, self.hedge(|delays| delays.llm))), warning)
            }
        }
    }

    /// The choices of agents that name no provider: those of the configuration, else the first
    /// vendor of which the operator has an account; empty = the built-in answerer.
    fn default_choices(&self, choice: &LlmChoice) -> Vec<LlmChoice> {
        let of = |provider: &str| LlmChoice {
            provider: provider.to_owned(),
            workspace: choice.workspace.clone(),
            ..LlmChoice::default()
        };
        self.default_providers(Kind::Llm, &choice.workspace).into_iter().map(of).collect()
    }

    /// The language model of one choice, and a sentence about its options. `limit`: time to its
    /// first token, unless the configuration has one.
    ///
    /// # Errors
    /// Why it cannot be served, without a full stop.
    pub(super) fn llm_entry(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        limit: Duration,
    ) -> Result<(ChainEntry<dyn Llm>, Option<String>), String> {
        let name = normalize_name(&choice.provider);
        let of_server = |ignored: Vec<&str>| ignored_options(Kind::Llm, &ignored);
        match name.as_str() {
            "builtin" | "visavis" => {
                let ignored = choice.options.keys().map(String::as_str).collect();
                return Ok((self.builtin_entry(agent_name), of_server(ignored)));
            }
            "script" => {
                let scripted = Arc::new(self.scripted_models(&choice.model)?);
                return Ok((ChainEntry::of_script(scripted), None));
            }
            _ => {}
        }
        let protocol = match name.as_str() {
            "openairesponses" => Protocol::Responses,
            "anthropic" | "claude" => Protocol::Anthropic,
            "google" | "gemini" => Protocol::Gemini,
            _ => Protocol::ChatCompletions,
        };
        let vendor = Vendor::of_provider(&name).filter(|vendor| vendor.serves(Kind::Llm));
        let Some(vendor) = vendor else {
            let requested = truncate_for_message(&choice.provider);
            return Err(format!("The LLM provider {requested:?} is not available on this server"));
        };
        let own = (choice.url.as_ref(), choice.token.as_ref());
        let mut access = self.access(vendor, Kind::Llm, own, &choice.workspace)?;
        access.timeouts.first.get_or_insert(limit);
        let breaker = Some(self.breaker(Kind::Llm, vendor, &access, &choice.model));
        let (model, ignored) = self.hosted_llm(protocol, &name, choice, access);
        let name = vendor.display_name.to_owned();
        let entry = ChainEntry { name, provider: vendor.name, model, breaker };
        Ok((entry, of_server(ignored)))
    }

    /// The client of a server, and the names of the options that it does not read.
    fn hosted_llm<'a>(
        &self,
        protocol: Protocol,
        provider: &str,
        choice: &'a LlmChoice,
        access: Access,
    ) -> (Arc<dyn Llm>, Vec<&'a str>) {
        let Access { url, token, model: operator_model, client, share_data, timeouts } = access;
        let (refused, runtime) = (self.refused_parameters.clone(), self.runtime.clone());
        let requested = non_empty(Some(&choice.model)).unwrap_or(&operator_model);
        let or_default = |text: &str, default: &str| match text {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        let default = Timeouts::default();
        let timeouts = Timeouts {
            first_token: timeouts.first.unwrap_or(default.first_token),
            between_tokens: timeouts.gap.unwrap_or(TOKEN_GAP),
            ..default
        };
        let config = |url: String, model: String| Config { url, token, model, timeouts };
        match protocol {
            Protocol::Anthropic => {
                let (options, ignored) = anthropic::Options::read(&choice.options);
                let Config { url, token, model, timeouts } = config(
                    or_default(&url, anthropic::DEFAULT_URL),
                    or_default(requested, anthropic::DEFAULT_MODEL),
                );
                let config = anthropic::Config { url, token, model, options, timeouts };
                (Arc::new(Anthropic::new(config, client, refused, runtime)), ignored)
            }
            Protocol::Gemini => {
                let (options, ignored) = gemini::read_options(&choice.options);
                let config = config(
                    or_default(&url, gemini::DEFAULT_URL),
                    or_default(requested, gemini::DEFAULT_MODEL),
                );
                (Arc::new(Gemini::new(config, options, client, refused, runtime)), ignored)
            }
            Protocol::Responses => {
                let (options, ignored) = responses::read_options(&choice.options);
                let config = config(
                    or_default(&url, responses::DEFAULT_URL),
                    or_default(requested, responses::DEFAULT_MODEL),
                );
                let llm =
                    OpenAiResponses::new(config, options, share_data, client, refused, runtime);
                (Arc::new(llm), ignored)
            }
            Protocol::ChatCompletions => {
                let (options, ignored) = openai::read_options(&choice.options);
                let (dialect, default_model) = openai::dialect_at(provider, &url);
                let default_url = openai::dialect(provider).map_or("", |dialect| dialect.url);
                let url = or_default(&url, default_url);
                let config = config(url, or_default(requested, default_model));
                let settings = openai::Settings { dialect, options, share_data };
                let llm = OpenAi::with_settings(config, settings, client, refused, runtime);
                (Arc::new(llm), ignored)
            }
        }
    }

    fn builtin_entry(&self, agent_name: &str) -> ChainEntry<dyn Llm> {
        let encoder = self.encoder.get().cloned();
        let llm = BuiltinLlm::new(agent_name, self.runtime.clone(), encoder);
        let name = "the built-in answerer".into();
        ChainEntry { name, provider: BUILTIN, model: Arc::new(llm), breaker: None }
    }
}

fn builtin_choice() -> LlmChoice {
    LlmChoice { provider: "builtin".into(), ..LlmChoice::default() }
}

/// The choice, the same with its fallback model, and its fallbacks.
fn expand(choice: &LlmChoice) -> Vec<LlmChoice> {
    let alone = |choice: &LlmChoice| LlmChoice { fallback: Vec::new(), ..choice.clone() };
    let mut choices = vec![alone(choice)];
    if let Some(model) = non_empty(choice.fallback_model.as_ref()) {
        choices.push(LlmChoice { model: model.to_owned(), ..alone(choice) });
    }
    choices.extend(
        choice
            .fallback
            .iter()
            .map(|next| LlmChoice { workspace: choice.workspace.clone(), ..alone(next) }),
    );
    choices
}
