//! Trials of providers: a sample of a voice, and a test of a complete chain. They send real
//! requests, which cost money, so that a workspace may make few of them in a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use engine_api::TtsChoice;
use models::probe::{self, Speech};
use models::registry::{Kind, Registry, is_builtin_tts};
use models::tts::{Request, Tts as TtsModel, builtin_provider_has};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, Path};
use crate::http::responses::JsonResult;
use crate::http::validate::FieldErrors;
use crate::resources::agents::access;
use crate::resources::agents::tokens::Address;
use crate::resources::avatars;
use crate::resources::model_choices::{Account, ModelChoices, of_avatar};
use crate::resources::providers::{registry_of, tts_of_workspace};
use crate::state::AppState;
use crate::store::agent::Agent;
use crate::store::json_record::{self, Table};
use crate::store::providers::{Llm, Providers, Stt, Tts};
use crate::store::secrets::{self, AgentSecrets, AvatarSecrets, SECRET_MASK};
use crate::store::{self};

/// Time for a sample.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for a test, and for each of its three steps.
const TEST_TIMEOUT: Duration = Duration::from_secs(15);
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the test sentence in a voice of this server, after the selected voice has failed.
const OWN_VOICE_TIMEOUT: Duration = Duration::from_secs(2);
/// What the voice says in a test, and the STT transcribes.
const TEST_SENTENCE: &str = "Hello, can you hear me?";
const UNKNOWN_AVATAR: &str = "is not an existing avatar";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/provider/{provider}/sample", post(sample))
        .route("/v1/ext/providers/test", post(test))
}

/// A sample of a voice.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "SampleBody")]
pub(crate) struct SampleRequest {
    /// Null = the provider's default.
    model_id: Option<String>,
    /// Null = the provider's default.
    #[schemars(length(max = 1_000))]
    voice_id: Option<String>,
    /// BCP 47 tag; null = the provider's default.
    language: Option<String>,
    /// The avatar whose voice speaks if there is no `voice_id`, as in its calls and videos. An
    /// avatar's voice is one of the built-in ones: other providers use their default.
    #[schemars(length(max = 1_000))]
    avatar_key_id: Option<String>,
    /// What the voice says.
    #[schemars(length(min = 1, max = 200))]
    text: String,
}

/// The chain to test, as in an avatar's `config`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ProvidersTestBody")]
pub(crate) struct TestRequest {
    /// The agent whose stored keys `***` stands for.
    agent_id: Option<String>,
    stt: Stt,
    llm: Llm,
    tts: Tts,
}

/// The result of a test. The TTS speaks a sentence, the STT transcribes it, the LLM answers a
/// question.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ProvidersTest {
    tts: StepResult,
    stt: StepResult,
    llm: StepResult,
}

/// The result of one step of a test.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StepResult {
    /// The provider that was tested.
    provider: String,
    /// Milliseconds from the request to the first sound or text, or from the end of the speech to
    /// its transcript; null after an error.
    latency_ms: Option<u64>,
    /// Why it failed, in one sentence; null if it worked.
    error: Option<String>,
    /// The transcript, or the beginning of the answer.
    text: Option<String>,
}

impl StepResult {
    fn new(provider: String, result: Result<(Duration, Option<String>), String>) -> Self {
        match result {
            Ok((latency, text)) => {
                let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
                Self { provider, latency_ms: Some(latency_ms), error: None, text }
            }
            Err(error) => Self { provider, latency_ms: None, error: Some(error), text: None },
        }
    }
}

async fn sample(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(provider): Path<String>,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let SampleRequest { model_id, voice_id, language, avatar_key_id, text } = body::parse(body)?;
    let mut voice = voice_id.unwrap_or_default();
    let choice = TtsChoice {
        provider,
        model_id: model_id.unwrap_or_default(),
        voice_id: voice.clone(),
        language: language.unwrap_or_default(),
        ..TtsChoice::default()
    };
    let choice = tts_of_workspace(&state, &caller, choice).await?;
    let registry = registry_of(&state)?;
    let tts = registry.single_tts(&choice).map_err(ApiError::Conflict)?;
    check_voice(&*tts, &voice, "voice_id")?;
    if let Some(avatar) = avatar_key_id.filter(|avatar| !avatar.is_empty()) {
        let own = avatars::voice_of(&state, &caller.workspace, &avatar).await?;
        let own = own.ok_or_else(|| ApiError::invalid_field("avatar_key_id", UNKNOWN_AVATAR))?;
        let is_spoken =
            is_builtin_tts(&choice.provider) && builtin_provider_has(&choice.provider, &own);
        if voice.is_empty() && is_spoken {
            voice = own;
        }
    }
    take_trial(&state, &caller)?;
    let request = Request { text, voice, ..Request::default() };
    let speech = probe::speak(tts, request, SAMPLE_TIMEOUT).await;
    let speech = speech.map_err(|error| ApiError::ProviderFailed(error.to_string()))?;
    registry.confirm_tts(&choice);
    let headers = [(header::CONTENT_TYPE, "audio/wav"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, wav(&speech)).into_response())
}

/// 400 if the provider cannot have this voice. Empty = its default.
fn check_voice(tts: &dyn TtsModel, voice: &str, field: &str) -> Result<(), ApiError> {
    let errors = FieldErrors::default();
    if !voice.is_empty() && !tts.has_voice(voice) {
        errors.add(field, "is not a voice of this provider");
    }
    errors.into_result(())
}

/// 429 if the workspace has made too many trials in this minute.
fn take_trial(state: &AppState, caller: &ApiCaller) -> Result<(), ApiError> {
    let workspace = Arc::clone(&caller.workspace);
    state.rate_limits.trials.check(workspace, Instant::now()).map_err(ApiError::RateLimited)
}

/// A WAV file of mono samples of 16 bits
/// (<https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html>).
fn wav(speech: &Speech) -> Vec<u8> {
    let bytes = u32::try_from(speech.pcm.len() * 2).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + speech.pcm.len() * 2);
    file.extend(b"RIFF");
    file.extend(bytes.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // PCM, one channel.
    file.extend([1, 0, 1, 0]);
    file.extend(speech.sample_rate.to_le_bytes());
    file.extend(speech.sample_rate.saturating_mul(2).to_le_bytes());
    // Bytes and bits of a sample.
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    speech.pcm.iter().for_each(|sample| file.extend(sample.to_le_bytes()));
    file
}

async fn test(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> JsonResult<ProvidersTest> {
    let TestRequest { agent_id, stt, llm, tts } = body::parse(body)?;
    let providers = Providers { llm, stt, tts };
    let errors = FieldErrors::default();
    access::check(&providers, &["llm", "stt", "tts"].map(String::from), &errors);
    errors.into_result(())?;
    let registry = registry_of(&state)?;
    let stored = match agent_id.filter(|id| !id.is_empty()) {
        Some(id) => Some(stored_providers(&state, &caller, &id).await?),
        None => None,
    };
    let secrets = tokens(&providers, stored.as_ref())?;
    let credentials = state.store.credentials(&state.vault, &caller.workspace).await?;
    let account = Account {
        workspace: &caller.workspace,
        credentials: &credentials,
        registry: Some(registry),
    };
    let choices = of_avatar(&providers, secrets, &account);
    // Why a TTS cannot be used is the result of its step.
    if let Ok(tts) = registry.single_tts(&choices.tts) {
        check_voice(&*tts, &choices.tts.voice_id, "tts.voice_id")?;
    }
    take_trial(&state, &caller)?;
    Ok(axum::Json(run(registry, choices).await))
}

/// The providers of an agent's first avatar, and their keys.
async fn stored_providers(
    state: &AppState,
    caller: &ApiCaller,
    id: &str,
) -> Result<(Providers, AvatarSecrets), ApiError> {
    let id = store::normalize_id(id).ok_or(ApiError::NotFound(Resource::Agent))?;
    let row = state.store.document(Table::Agent, &caller.workspace, &id).await?;
    let row = row.ok_or(ApiError::NotFound(Resource::Agent))?;
    let agent: Agent = json_record::parse_document(&row.document)?;
    let secrets: AgentSecrets = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let providers = agent.settings.first_avatar().config.clone();
    Ok((providers, secrets.avatars.into_iter().next().unwrap_or_default()))
}

/// The keys of a request. `***` stands for the agent's own key, which is sent only to the provider
/// and the address that it was stored with.
fn tokens(
    providers: &Providers,
    stored: Option<&(Providers, AvatarSecrets)>,
) -> Result<AvatarSecrets, ApiError> {
    let errors = FieldErrors::default();
    let resolve = |field: &str,
                   token: &Option<String>,
                   address: Address<'_>,
                   old: Option<(Address<'_>, &Option<String>)>| {
        let token = token.as_ref().filter(|token| !token.is_empty())?;
        if token != SECRET_MASK {
            return Some(token.clone());
        }
        let same = old.filter(|(old, _)| old.is_same(address));
        let stored = same.and_then(|(_, token)| token.clone());
        if stored.is_none() {
            errors.add(field, "must be given again: no key is stored for this address");
        }
        stored
    };
    let Providers { llm, stt, tts } = providers;
    let secrets = AvatarSecrets {
        llm: resolve(
            "llm.token",
            &llm.token,
            Address::new(&llm.provider, &llm.url),
            stored.map(|(old, keys)| (Address::new(&old.llm.provider, &old.llm.url), &keys.llm)),
        ),
        stt: resolve(
            "stt.token",
            &stt.token,
            Address::new(&stt.provider, &stt.url),
            stored.map(|(old, keys)| (Address::new(&old.stt.provider, &old.stt.url), &keys.stt)),
        ),
        tts: resolve(
            "tts.token",
            &tts.token,
            Address::new(&tts.provider, &tts.url),
            stored.map(|(old, keys)| (Address::new(&old.tts.provider, &old.tts.url), &keys.tts)),
        ),
        ..AvatarSecrets::default()
    };
    errors.into_result(secrets)
}

/// Tests the first provider of each kind, one after another.
async fn run(registry: &Registry, choices: ModelChoices) -> ProvidersTest {
    let ModelChoices { stt, llm, tts } = choices;
    let deadline = Instant::now() + TEST_TIMEOUT;
    let step_limit = || STEP_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
    let name =
        |kind, provider: &str, workspace: &str| registry.first_provider(kind, provider, workspace);
    let spoken = match registry.single_tts(&tts) {
        Ok(model) => speak(model, tts.voice_id.clone(), step_limit())
            .await
            .inspect(|_| registry.confirm_tts(&tts)),
        Err(why) => Err(why),
    };
    let tts_result = spoken.as_ref().map(|speech| (speech.latency, None)).map_err(String::clone);
    let speech = match spoken {
        Ok(speech) => Ok(speech),
        // The other steps are tested all the same.
        Err(_) => built_in_speech(registry).await,
    };
    let stt_result = match (speech, registry.single_stt(&stt)) {
        (Ok(speech), Ok(model)) => probe::transcribe(&*model, &speech, step_limit())
            .await
            .inspect(|_| registry.confirm_stt(&stt))
            .map(|result| (result.latency, Some(result.text)))
            .map_err(|error| error.to_string()),
        (_, Err(why)) => Err(why),
        (Err(_), Ok(_)) => Err("Not tested, because no voice spoke the test sentence.".into()),
    };
    let llm_result = match registry.single_llm(&llm, "the agent") {
        Ok(model) => probe::ask(&*model, step_limit())
            .await
            .inspect(|_| registry.confirm_llm(&llm))
            .map(|result| (result.latency, Some(result.text)))
            .map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    ProvidersTest {
        tts: StepResult::new(name(Kind::Tts, &tts.provider, &tts.workspace), tts_result),
        stt: StepResult::new(name(Kind::Stt, &stt.provider, &stt.workspace), stt_result),
        llm: StepResult::new(name(Kind::Llm, &llm.provider, &llm.workspace), llm_result),
    }
}

async fn speak(tts: Arc<dyn TtsModel>, voice: String, limit: Duration) -> Result<Speech, String> {
    let request = Request { text: TEST_SENTENCE.into(), voice, ..Request::default() };
    probe::speak(tts, request, limit).await.map_err(|error| error.to_string())
}

/// The test sentence in a voice of this server.
async fn built_in_speech(registry: &Registry) -> Result<Speech, String> {
    let builtin = TtsChoice { provider: "builtin".into(), ..TtsChoice::default() };
    speak(registry.single_tts(&builtin)?, String::new(), OWN_VOICE_TIMEOUT).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_wav_file_has_a_header_of_44_bytes() {
        let speech = Speech { pcm: vec![1, -2], sample_rate: 24_000, latency: Duration::ZERO };
        let file = wav(&speech);
        assert_eq!(file.len(), 48);
        assert_eq!((&file[..4], &file[8..16]), (&b"RIFF"[..], &b"WAVEfmt "[..]));
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((number(4), number(16), number(24), number(28)), (40, 16, 24_000, 48_000));
        assert_eq!(number(40), 4);
        assert_eq!(file[44..], [1, 0, 254, 255]);
    }

    fn providers(llm: Value) -> Providers {
        Providers { llm: serde_json::from_value(llm).unwrap(), ..Providers::default() }
    }

    #[test]
    fn the_mask_stands_for_the_agent_s_key_at_its_own_address() {
        let stored = providers(json!({"provider": "openai", "url": "https://a.example"}));
        let keys = AvatarSecrets { llm: Some("secret".into()), ..AvatarSecrets::default() };
        let stored = (stored, keys);
        let token = |llm: Value, stored: Option<&(Providers, AvatarSecrets)>| {
            tokens(&providers(llm), stored).map(|secrets| secrets.llm).ok()
        };
        let masked =
            |provider: &str, url: &str| json!({"provider": provider, "url": url, "token": "***"});
        let same = token(masked("OpenAI", "https://a.example"), Some(&stored));
        assert_eq!(same, Some(Some("secret".into())));
        for llm in [masked("openai", "https://b.example"), masked("groq", "https://a.example")] {
            assert_eq!(token(llm.clone(), Some(&stored)), None, "{llm}");
        }
        assert_eq!(token(masked("openai", "https://a.example"), None), None);
        let own = json!({"provider": "openai", "token": "own"});
        assert_eq!(token(own, None), Some(Some("own".into())));
        assert_eq!(token(json!({"token": ""}), None), Some(None));
    }
}
