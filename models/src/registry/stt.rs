//! The STT of an agent. Each hosted one has the next one as its fallback, the built-in STT the last.

use std::sync::Arc;

use engine_api::SttChoice;

use super::vendors::{Kind, Vendor};
use super::{Registry, WithWarning, joined, non_empty, normalize_name, truncate_for_message};
use crate::stt::Stt;
use crate::stt::deepgram::{DEFAULT_MODEL, DeepgramConfig, deepgram};
use crate::{Error, ErrorKind};

impl Registry {
    /// The STT for `choice`. A hosted one has the next one of the chain as its fallback.
    pub fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn Stt>, Error>> {
        let mut choices = expand(choice);
        if choice.provider.trim().is_empty() && !self.config.defaults.stt.is_empty() {
            let of = |name: &String| SttChoice { provider: name.clone(), ..choices[0].clone() };
            choices = self.config.defaults.stt.iter().map(of).collect();
        }
        let (mut stt, mut warnings) = (None, Vec::new());
        // From the last one to the first, because each one needs its fallback.
        for choice in choices.iter().rev() {
            match self.stt_entry(choice, stt.clone()) {
                Ok((entry, warning)) => {
                    stt = Some(entry);
                    warnings.extend(warning);
                }
                Err(why) => {
                    let who = if stt.is_some() { "the next provider" } else { "the built-in STT" };
                    warnings.push(format!("{why}; {who} is used instead."));
                }
            }
        }
        warnings.reverse();
        (stt.map_or_else(|| self.builtin_stt(), Ok), joined(warnings))
    }

    /// The STT of one choice, and a sentence about its settings.
    ///
    /// # Errors
    /// Why it cannot be served, without a full stop.
    fn stt_entry(
        &self,
        choice: &SttChoice,
        fallback: Option<Arc<dyn Stt>>,
    ) -> Result<WithWarning<Arc<dyn Stt>>, String> {
        let name = normalize_name(&choice.provider);
        let builtin = match name.as_str() {
            "moonshine" => self.moonshine.get().cloned(),
            "pocketsphinx" => self.pocketsphinx.get().cloned(),
            "" | "builtin" | "visavis" => {
                let builtin = self.builtin_stt();
                Some(builtin.map_err(|_| "This server has no built-in STT".to_owned())?)
            }
            _ => None,
        };
        if let Some(stt) = builtin {
            return Ok((stt, language_warning(&choice.language)));
        }
        if name == "script" {
            return Ok((Arc::new(self.scripted_models(&choice.model)?), None));
        }
        let vendor = Vendor::find(&name).filter(|vendor| vendor.serves(Kind::Stt));
        let Some(vendor) = vendor else {
            let requested = truncate_for_message(&choice.provider);
            return Err(format!(
                "The speech-to-text provider {requested:?} is not available on this server"
            ));
        };
        let fallback = fallback.or_else(|| self.builtin_stt().ok());
        self.hosted_stt(vendor, choice, fallback)
    }

    fn hosted_stt(
        &self,
        vendor: &'static Vendor,
        choice: &SttChoice,
        fallback: Option<Arc<dyn Stt>>,
    ) -> Result<WithWarning<Arc<dyn Stt>>, String> {
        let own = (choice.url.as_ref(), choice.token.as_ref());
        let access = self.access(vendor, Kind::Stt, own, &choice.workspace)?;
        let default_model = non_empty(Some(&access.model)).unwrap_or(DEFAULT_MODEL);
        let (model, warning) = match choice.model.trim() {
            "" => (default_model, None),
            // The models of Deepgram's interface for turns.
            flux if flux.to_lowercase().starts_with("flux") => {
                let requested = truncate_for_message(flux);
                let warning = format!(
                    "The Deepgram model {requested:?} is not available on this server; \
                     {default_model} is used instead."
                );
                (default_model, Some(warning))
            }
            model => (model, None),
        };
        let config = DeepgramConfig {
            url: access.url.clone(),
            token: access.token.clone(),
            model: model.into(),
            language: choice.language.clone(),
            keyterms: choice.keyterms.clone(),
        };
        let stt = deepgram(&config, access.client, fallback, self.runtime.clone())
            .map_err(|error| error.to_string())?;
        Ok((stt, warning))
    }

    /// The best STT on this machine.
    fn builtin_stt(&self) -> Result<Arc<dyn Stt>, Error> {
        let best = self.moonshine.get().or_else(|| self.pocketsphinx.get());
        best.cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotAvailable, "no STT engine is installed"))
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
