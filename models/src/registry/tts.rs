//! The TTS of an agent: its providers in the order in which they are tried, the built-in voices
//! last.

use std::sync::Arc;

use engine_api::TtsChoice;

use super::unserved::Unserved;
use super::vendors::{CUSTOM, Kind, Vendor};
use super::{
    Access, BUILTIN, Registry, WithWarning, ignored_options, non_empty, normalize_name,
    truncate_for_message,
};
use crate::Error;
use crate::chain::{ChainEntry, NamedTts, TtsChain, TtsEntry};
use crate::tts::cartesia::{CartesiaConfig, cartesia};
use crate::tts::deepgram::{DeepgramTtsConfig, deepgram};
use crate::tts::elevenlabs::{ElevenLabsConfig, elevenlabs};
use crate::tts::openai::{OpenAiConfig, openai};
use crate::tts::{self, BuiltinTts, Tts};

impl Registry {
    /// The TTS for `choice`. The engine resolves the voice.
    pub fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn Tts>, Error>> {
        let mut choices = vec![choice.clone()];
        choices.extend(
            choice
                .fallback
                .iter()
                .map(|next| TtsChoice { workspace: choice.workspace.clone(), ..next.clone() }),
        );
        if choice.provider.trim().is_empty() && !self.config.defaults.tts.is_empty() {
            let of = |name: &String| TtsChoice { provider: name.clone(), ..choice.clone() };
            choices = self.config.defaults.tts.iter().map(of).collect();
        }
        let (mut entries, mut unserved) = (Vec::new(), Unserved::default());
        for (number, choice) in choices.iter().enumerate() {
            match self.tts_entry(choice) {
                Ok((entry, note)) => {
                    unserved.served(&entry.name, note);
                    // The first one speaks with the voice of the request.
                    let voice = if number > 0 { choice.voice_id.clone() } else { String::new() };
                    entries.push(TtsEntry { entry, voice });
                }
                Err(why) => unserved.refused(why),
            }
        }
        let warning = unserved.finish("a built-in TTS voice");
        if entries.last().is_none_or(|last| last.entry.breaker.is_some()) {
            match (self.builtin_tts(), entries.is_empty()) {
                (Ok(entry), _) => entries.push(TtsEntry { entry, voice: String::new() }),
                (Err(error), true) => return (Err(error), warning),
                (Err(_), false) => {}
            }
        }
        match entries.pop() {
            Some(only) if entries.is_empty() => (Ok(Arc::new(NamedTts(only.entry))), warning),
            last => {
                entries.extend(last);
                let hedge = self.hedge(|delays| delays.tts);
                (Ok(Arc::new(TtsChain::new(entries, hedge))), warning)
            }
        }
    }

    /// The TTS of one choice, and a sentence about its options.
    ///
    /// # Errors
    /// Why it cannot be served, without a full stop.
    pub(super) fn tts_entry(
        &self,
        choice: &TtsChoice,
    ) -> Result<(ChainEntry<dyn Tts>, Option<String>), String> {
        let name = normalize_name(&choice.provider);
        let builtin = |name: &str, provider: &'static str, model: Arc<dyn Tts>| {
            let ignored: Vec<&str> = choice.options.keys().map(String::as_str).collect();
            let entry = ChainEntry { name: name.to_owned(), provider, model, breaker: None };
            Ok((entry, ignored_options(Kind::Tts, &ignored)))
        };
        match (name.as_str(), self.hibari.get(), self.flite.get()) {
            ("hibari", Some(hibari), _) => return builtin("Hibari", "hibari", Arc::clone(hibari)),
            ("flite", _, Some(flite)) => return builtin("flite", "flite", Arc::clone(flite)),
            ("" | "builtin" | "visavis", ..) => {
                let entry = self.builtin_tts().map_err(|_| "This server has no built-in voice")?;
                return builtin(&entry.name, entry.provider, entry.model);
            }
            ("script", ..) => {
                let scripted = Arc::new(self.scripted_models(&choice.model_id)?);
                return Ok((ChainEntry::of_script(scripted), None));
            }
            _ => {}
        }
        let vendor = Vendor::find(&name).filter(|vendor| vendor.serves(Kind::Tts));
        let Some(vendor) = vendor else {
            let requested = truncate_for_message(&choice.provider);
            return Err(format!(
                "The text-to-speech provider {requested:?} is not available on this server"
            ));
        };
        let own = (choice.url.as_ref(), choice.token.as_ref());
        let access = self.access(vendor, Kind::Tts, own, &choice.workspace)?;
        let breaker = Some(self.breaker(Kind::Tts, vendor, &access, &choice.model_id));
        let (model, ignored) = self.hosted_tts(vendor, choice, access)?;
        let name = vendor.display_name.to_owned();
        let entry = ChainEntry { name, provider: vendor.name, model, breaker };
        Ok((entry, ignored_options(Kind::Tts, &ignored)))
    }

    /// The TTS at a vendor, and the names of the options that it does not read.
    fn hosted_tts<'a>(
        &self,
        vendor: &Vendor,
        choice: &'a TtsChoice,
        access: Access,
    ) -> Result<(Arc<dyn Tts>, Vec<&'a str>), String> {
        let Access { url, token, model: operator_model, client, share_data, timeouts } = access;
        let model = non_empty(Some(&choice.model_id)).unwrap_or(&operator_model).to_owned();
        let (voice, language) = (String::new(), choice.language.clone());
        let (values, runtime) = (&choice.options, self.runtime.clone());
        let default = tts::Timeouts::default();
        let timeouts = tts::Timeouts {
            connect: timeouts.connect.unwrap_or(default.connect),
            first_sound: timeouts.first.unwrap_or(default.first_sound),
            gap: timeouts.gap.unwrap_or(default.gap),
        };
        let (tts, ignored) = match vendor.name {
            "elevenlabs" => {
                let (options, ignored) = tts::elevenlabs::Options::read(values);
                let config = ElevenLabsConfig {
                    url,
                    token,
                    model,
                    voice,
                    language,
                    options,
                    share_data,
                    timeouts,
                };
                (elevenlabs(&config, client, runtime), ignored)
            }
            "cartesia" => {
                let (options, ignored) = tts::cartesia::Options::read(values);
                let config =
                    CartesiaConfig { url, token, model, voice, language, options, timeouts };
                (cartesia(&config, client, runtime), ignored)
            }
            "deepgram" => {
                let (options, ignored) = tts::deepgram::Options::read(values);
                let config = DeepgramTtsConfig {
                    url,
                    token,
                    model,
                    voice,
                    language,
                    options,
                    share_data,
                    timeouts,
                };
                (deepgram(&config, client, runtime), ignored)
            }
            // Also any server with its interface.
            _ => {
                let (options, ignored) = tts::openai::Options::read(values);
                let name = (vendor.name != CUSTOM).then_some(vendor.display_name);
                let config = OpenAiConfig { name, url, token, model, voice, options, timeouts };
                (openai(&config, client, runtime), ignored)
            }
        };
        Ok((tts.map_err(|error| error.to_string())?, ignored))
    }

    /// The built-in voices.
    fn builtin_tts(&self) -> Result<ChainEntry<dyn Tts>, Error> {
        let builtin = BuiltinTts::new(self.hibari.get().cloned(), self.flite.get().cloned())?;
        let (name, provider) = ("a built-in voice".into(), BUILTIN);
        Ok(ChainEntry { name, provider, model: Arc::new(builtin), breaker: None })
    }
}
