//! The STT of an agent. Each hosted one has the next one as its fallback, the built-in STT the last.

use std::sync::Arc;

use engine_api::SttChoice;

use serde_json::{Map, Value};

use super::unserved::Unserved;
use super::vendors::{Kind, Vendor};
use super::{
    Access, BUILTIN, ProviderTimeouts, Registry, WithWarning, ignored_options, joined, non_empty,
    normalize_name, truncate_for_message,
};
use crate::chain::NamedStt;
use crate::stt::{
    Fallback, HostedConfig, HostedOptions, Stt, Timeouts, assemblyai, deepgram, elevenlabs, openai,
    transcriptions,
};
use crate::{Error, ErrorKind};

/// Name of the built-in STT in sentences.
const BUILTIN_NAME: &str = "the built-in STT";

impl Registry {
    /// The STT for `choice`. A hosted one has the next one of the chain as its fallback.
    pub fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn Stt>, Error>> {
        let mut choices = expand(choice);
        if choice.provider.trim().is_empty() && !self.config.defaults.stt.is_empty() {
            let of = |name: &String| SttChoice { provider: name.clone(), ..choices[0].clone() };
            choices = self.config.defaults.stt.iter().map(of).collect();
        }
        let (mut stt, mut results) = (None, Vec::new());
        let builtin = || Some((BUILTIN_NAME.to_owned(), self.builtin_stt().ok()?));
        // From the last one to the first, because each one needs its fallback.
        for choice in choices.iter().rev() {
            let entry = self.stt_entry(choice, stt.clone().or_else(builtin));
            results.push(entry.map(|(name, (model, note))| {
                stt = Some((name.clone(), model));
                (name, note)
            }));
        }
        let mut unserved = Unserved::default();
        for result in results.into_iter().rev() {
            match result {
                Ok((name, note)) => unserved.served(&name, note),
                Err(why) => unserved.refused(why),
            }
        }
        let warning = unserved.finish(BUILTIN_NAME);
        (stt.map_or_else(|| self.builtin_stt(), |(_, stt)| Ok(stt)), warning)
    }

    /// The STT of one choice with its name for people, and a sentence about its settings.
    /// `fallback`: the next one of the chain, with its name. Without one, a hosted STT is used also
    /// while its breaker is open.
    ///
    /// # Errors
    /// Why it cannot be served, without a full stop.
    pub(super) fn stt_entry(
        &self,
        choice: &SttChoice,
        fallback: Option<(String, Arc<dyn Stt>)>,
    ) -> Result<(String, WithWarning<Arc<dyn Stt>>), String> {
        let name = normalize_name(&choice.provider);
        let builtin = match name.as_str() {
            "moonshine" => self.moonshine.get().map(|stt| named("moonshine", stt)),
            "pocketsphinx" => self.pocketsphinx.get().map(|stt| named("pocketsphinx", stt)),
            "" | "builtin" | "visavis" => {
                let builtin = self.builtin_stt();
                Some(builtin.map_err(|_| "This server has no built-in STT".to_owned())?)
            }
            _ => None,
        };
        if let Some(stt) = builtin {
            let ignored: Vec<&str> = choice.options.keys().map(String::as_str).collect();
            let warnings = language_warning(&choice.language).into_iter();
            let warnings = warnings.chain(ignored_options(Kind::Stt, &ignored)).collect();
            return Ok((BUILTIN_NAME.to_owned(), (stt, joined(warnings))));
        }
        if name == "script" {
            let scripted = Arc::new(self.scripted_models(&choice.model)?);
            let scripted: Arc<dyn Stt> = scripted;
            return Ok(("the script".to_owned(), (named("script", &scripted), None)));
        }
        let vendor = Vendor::find(&name).filter(|vendor| vendor.serves(Kind::Stt));
        let Some(vendor) = vendor else {
            let requested = truncate_for_message(&choice.provider);
            return Err(format!(
                "The speech-to-text provider {requested:?} is not available on this server"
            ));
        };
        self.hosted_stt(vendor, choice, fallback)
    }

    fn hosted_stt(
        &self,
        vendor: &'static Vendor,
        choice: &SttChoice,
        fallback: Option<(String, Arc<dyn Stt>)>,
    ) -> Result<(String, WithWarning<Arc<dyn Stt>>), String> {
        let own = (choice.url.as_ref(), choice.token.as_ref());
        let access = self.access(vendor, Kind::Stt, own, &choice.workspace)?;
        let breaker = self.breaker(Kind::Stt, vendor, &access, &choice.model);
        let fallback = Fallback::new(fallback, breaker);
        let Access { url, token, model: operator_model, client, share_data, timeouts } = access;
        let model = non_empty(Some(&choice.model)).unwrap_or(&operator_model).to_owned();
        let (mut options, ignored) = read_options(vendor, &model, &choice.options);
        options.share_data = share_data;
        options.provider_turns = choice.provider_turns;
        let config = HostedConfig {
            url,
            token,
            model,
            language: choice.language.clone(),
            keyterms: choice.keyterms.clone(),
            options,
            timeouts: stt_timeouts(&timeouts),
        };
        let make = match vendor.name {
            "deepgram" => deepgram::deepgram,
            "assemblyai" => assemblyai::assemblyai,
            "elevenlabs" => elevenlabs::elevenlabs,
            "openai" => openai::openai,
            "groq" => transcriptions::groq,
            _ => transcriptions::openai_compatible,
        };
        let stt = make(&config, client, fallback, self.runtime.clone());
        let stt = named(vendor.name, &stt.map_err(|error| error.to_string())?);
        Ok((vendor.display_name.to_owned(), (stt, ignored_options(Kind::Stt, &ignored))))
    }

    /// The best STT on this machine.
    fn builtin_stt(&self) -> Result<Arc<dyn Stt>, Error> {
        let best = self.moonshine.get().or_else(|| self.pocketsphinx.get());
        best.map(|stt| named(BUILTIN, stt))
            .ok_or_else(|| Error::new(ErrorKind::NotAvailable, "no STT engine is installed"))
    }
}

/// The STT, which tells this name of its provider.
fn named(provider: &'static str, stt: &Arc<dyn Stt>) -> Arc<dyn Stt> {
    Arc::new(NamedStt { provider, stt: Arc::clone(stt) })
}

/// The time limits of an STT: those that are configured, and the defaults.
fn stt_timeouts(configured: &ProviderTimeouts) -> Timeouts {
    let default = Timeouts::default();
    Timeouts {
        connect: configured.connect.unwrap_or(default.connect),
        first: configured.first.unwrap_or(default.first),
        final_transcript: configured.final_transcript,
    }
}

/// The options of a vendor's model, and the names of those that it does not read.
fn read_options<'a>(
    vendor: &Vendor,
    model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    match vendor.name {
        "deepgram" => deepgram::read_options(model, values),
        "assemblyai" => assemblyai::read_options(model, values),
        "elevenlabs" => elevenlabs::read_options(model, values),
        "openai" => openai::read_options(model, values),
        _ => transcriptions::read_options(model, values),
    }
}

/// The sentence about a language that the built-in STT does not know.
fn language_warning(language: &str) -> Option<String> {
    let tag = language.trim().to_lowercase();
    let is_english = matches!(tag.split(['-', '_']).next(), Some("" | "en" | "multi" | "auto"));
    (!is_english).then(|| {
        format!("The built-in STT supports English only, not {:?}.", truncate_for_message(language))
    })
}

/// The choice, the same with its fallback model, and its fallbacks.
fn expand(choice: &SttChoice) -> Vec<SttChoice> {
    let alone = |choice: &SttChoice| SttChoice { fallback: Vec::new(), ..choice.clone() };
    let mut choices = vec![alone(choice)];
    if let Some(model) = non_empty(choice.fallback_model.as_ref()) {
        choices.push(SttChoice { model: model.to_owned(), ..alone(choice) });
    }
    choices.extend(
        choice
            .fallback
            .iter()
            .map(|next| SttChoice { workspace: choice.workspace.clone(), ..alone(next) }),
    );
    choices
}

#[cfg(test)]
mod tests;
