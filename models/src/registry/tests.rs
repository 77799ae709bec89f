use serde_json::json;
use tokio::sync::mpsc;

use engine_api::{LlmChoice, SttChoice, TtsChoice};

use super::*;
use crate::llm::{Event, Llm, Request};
use crate::{Sink, stt};

/// An STT that is always busy, and says who it is.
struct BusyStt(&'static str);

impl Stt for BusyStt {
    fn open(&self, _: Sink<stt::Event>) -> Result<Box<dyn stt::SttStream>, Error> {
        Err(Error::new(ErrorKind::Busy, self.0))
    }
}

fn registry(config: Config) -> Registry {
    Registry::new(
        config,
        egress::Client::new(egress::Policy::default()).unwrap(),
        Runtime::current(),
    )
}

fn choice(provider: &str) -> LlmChoice {
    LlmChoice { provider: provider.into(), model: "their-model".into(), ..LlmChoice::default() }
}

fn request(text: &str) -> Request {
    Request {
        prompt: String::new(),
        history: serde_json::from_value(json!([{"role": "user", "text": text}])).unwrap(),
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    }
}

async fn answer(llm: &Arc<dyn Llm>, text: &str) -> Result<String, String> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let _handle = llm.ask(request(text), Sink::new(move |event| drop(sender.send(event))));
    let mut answer = String::new();
    loop {
        match receiver.recv().await {
            Some(Event::Text(text)) => answer += &text,
            Some(Event::Failed(error)) => return Err(error.to_string()),
            Some(Event::Warning(_) | Event::Provider(_) | Event::ServedBy(_)) => {}
            _ => return Ok(answer),
        }
    }
}

/// A server of both protocols that replies with the model and the key of the request.
async fn echo_server() -> String {
    use axum::http::HeaderMap;
    let words = |body: &str, key: Option<&axum::http::HeaderValue>| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        format!("{} {}", body["model"], key.map_or("none", |value| value.to_str().unwrap()))
    };
    let stream = |events: String| ([("content-type", "text/event-stream")], events);
    let openai = move |headers: HeaderMap, body: String| async move {
        let content = words(&body, headers.get("authorization"));
        let event = json!({"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]});
        stream(format!("data: {event}\n\ndata: [DONE]\n\n"))
    };
    let anthropic = move |headers: HeaderMap, body: String| async move {
        let text = words(&body, headers.get("x-api-key"));
        let delta =
            json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}});
        let end = json!({"type": "message_stop"});
        stream(format!("data: {delta}\n\ndata: {end}\n\n"))
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = axum::Router::new()
        .route("/v1/chat/completions", axum::routing::post(openai))
        .route("/v1/messages", axum::routing::post(anthropic));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A configuration with accounts at vendors.
fn config(accounts: &[(&str, Account)]) -> Config {
    let mut config = Config::default();
    for (name, account) in accounts {
        config.accounts.insert(Vendor::find(name).unwrap(), account.clone());
    }
    config
}

fn account(url: &str, token: Option<&str>, model: Option<&str>) -> Account {
    let [token, model] = [token, model].map(|text| text.map(str::to_owned));
    Account { url: Some(url.into()), token, model, ..Account::default() }
}

fn open_registry(accounts: &[(&str, Account)]) -> Registry {
    Registry::new(
        config(accounts),
        egress::Client::new(egress::Policy { allow_private: true }).unwrap(),
        Runtime::current(),
    )
}

#[tokio::test]
async fn unknown_vendors_fall_back_to_the_built_in_answerer_and_say_so() {
    let registry = registry(Config::default());
    for provider in ["", "builtin", "Built-in"] {
        let (llm, warning) = registry.llm(&choice(provider), "Ada", false);
        assert_eq!(warning, None, "{provider}");
        assert!(answer(&llm, "who are you").await.unwrap().contains("Ada"));
    }
    let (llm, warning) = registry.llm(&choice("anthropic"), "Ada", false);
    assert_eq!(
        warning.unwrap(),
        "The LLM provider \"anthropic\" needs an API key; the built-in answerer is used instead."
    );
    assert!(answer(&llm, "who are you").await.unwrap().contains("Ada"));
    assert!(registry.llm(&choice("openai"), "Ada", false).1.is_some());
    let unknown = registry.llm(&choice("nobody"), "Ada", false).1.unwrap();
    assert!(unknown.starts_with("The LLM provider \"nobody\" is not available"), "{unknown}");
    assert!(registry.llm(&choice("custom"), "Ada", false).1.unwrap().contains("requires a url"));
}

#[tokio::test]
async fn the_operators_server_answers_for_all_that_name_no_other_and_is_trusted() {
    let operator = account(&echo_server().await, Some("op"), Some("ours"));
    let registry = registry(config(&[("openai", operator)]));
    let (llm, warning) = registry.llm(&choice(""), "Ada", false);
    assert_eq!((answer(&llm, "hi").await, warning), (Ok("\"ours\" Bearer op".into()), None));
    // A model of another vendor is not requested from this server; one of this server is.
    let (llm, warning) = registry.llm(&choice("anthropic"), "Ada", false);
    assert_eq!(answer(&llm, "hi").await.unwrap(), "\"ours\" Bearer op");
    assert!(warning.unwrap().contains("the server's own language model"));
    let (llm, warning) = registry.llm(&choice("openai"), "Ada", false);
    assert_eq!((answer(&llm, "hi").await, warning), (Ok("\"their-model\" Bearer op".into()), None));
    let (llm, _) = registry.llm(&choice("builtin"), "Ada", false);
    assert!(answer(&llm, "who are you").await.unwrap().contains("Ada"));
}

#[tokio::test]
async fn an_agents_own_server_is_asked_under_the_policy() {
    let url = echo_server().await;
    let custom = LlmChoice {
        url: Some(url),
        token: Some("mine".into()),
        fallback_model: Some("second".into()),
        ..choice("custom")
    };
    let strict = registry(Config::default());
    assert_eq!(
        answer(&strict.llm(&custom, "Ada", false).0, "hi").await,
        Err("The address of the LLM server is private, which this server does not allow".into())
    );
    let open = open_registry(&[]);
    assert_eq!(
        answer(&open.llm(&custom, "Ada", false).0, "hi").await.unwrap(),
        "\"their-model\" Bearer mine"
    );
    assert_eq!(
        answer(&open.llm(&custom, "Ada", true).0, "hi").await.unwrap(),
        "\"second\" Bearer mine"
    );
}

#[tokio::test]
async fn scripts_need_the_operators_leave() {
    let script = LlmChoice {
        model: concat!(
            r#"{"utterances":[{"transcript":"","reply":"Scripted."}],"#,
            r#""providers":{"llm":{"first_token_s":0}}}"#,
        )
        .into(),
        ..choice("script")
    };
    let (llm, warning) = registry(Config::default()).llm(&script, "Ada", false);
    assert!(warning.unwrap().contains("not allowed"));
    assert_ne!(answer(&llm, "hi").await.unwrap(), "Scripted.");
    let allowed = registry(Config { allow_scripted: true, ..Config::default() });
    let (llm, warning) = allowed.llm(&script, "Ada", false);
    assert_eq!((answer(&llm, "hi").await, warning), (Ok("Scripted.".into()), None));
    assert!(
        allowed
            .llm(&LlmChoice { model: "{".into(), ..script }, "Ada", false)
            .1
            .unwrap()
            .contains("cannot be read")
    );
    let stt = SttChoice { provider: "script".into(), ..SttChoice::default() };
    assert!(allowed.stt(&stt).0.is_ok() && allowed.stt(&stt).1.is_none());
    let tts = TtsChoice { provider: "script".into(), ..TtsChoice::default() };
    assert!(allowed.tts(&tts).0.is_ok() && allowed.tts(&tts).1.is_none());
}

#[tokio::test]
async fn unavailable_stt_and_tts_providers_are_reported() {
    let registry = registry(Config::default());
    let (stt, _) = registry.stt(&SttChoice::default());
    assert_eq!(stt.err().map(|error| error.kind()), Some(ErrorKind::NotAvailable));
    registry.set_pocketsphinx(Arc::new(BusyStt("sphinx")));
    let ask = |provider: &str, language: &str| {
        let (stt, warning) = registry.stt(&SttChoice {
            provider: provider.into(),
            language: language.into(),
            ..SttChoice::default()
        });
        assert!(stt.is_ok());
        warning
    };
    assert_eq!(ask("", "en-US"), None);
    assert_eq!(ask("PocketSphinx", "en"), None);
    assert!(ask("moonshine", "").unwrap().contains("\"moonshine\""));
    assert!(ask("deepgram", "").unwrap().contains("\"deepgram\""));
    assert!(ask("", "de").unwrap().contains("English only"));
    let (voice, warning) =
        registry.tts(&TtsChoice { provider: "elevenlabs".into(), ..TtsChoice::default() });
    assert_eq!(voice.err().map(|error| error.kind()), Some(ErrorKind::NotAvailable));
    assert!(warning.unwrap().contains("\"elevenlabs\""));
}

#[tokio::test]
async fn the_built_in_stt_is_the_best_one_and_each_has_its_name() {
    let registry = registry(Config::default());
    let found = |provider: &str| {
        let choice = SttChoice { provider: provider.into(), ..SttChoice::default() };
        let stt = registry.stt(&choice).0.unwrap_or_else(|e| panic!("{e}"));
        stt.open(Sink::new(drop)).err().map(|error| error.to_string())
    };
    let is = |name: &str| Some(name.to_owned());
    registry.set_pocketsphinx(Arc::new(BusyStt("sphinx")));
    assert_eq!(found("builtin"), is("sphinx"));
    registry.set_moonshine(Arc::new(BusyStt("moon")));
    for name in ["", "builtin", "Moonshine"] {
        assert_eq!(found(name), is("moon"), "{name}");
    }
    assert_eq!(found("pocketsphinx"), is("sphinx"));
}

#[tokio::test]
async fn an_agents_anthropic_account_is_asked_where_the_agent_says() {
    let url = echo_server().await;
    let operator = account(&url, Some("op"), Some("ours"));
    let registry = open_registry(&[("anthropic", operator)]);
    let asked = async |choice: LlmChoice, fallback| {
        let (llm, warning) = registry.llm(&choice, "Ada", fallback);
        (answer(&llm, "hi").await.unwrap(), warning)
    };
    // The operator's server serves agents that name no provider, no key and no address.
    assert_eq!(asked(choice(""), false).await, ("\"ours\" op".into(), None));
    assert_eq!(asked(choice("anthropic"), false).await, ("\"their-model\" op".into(), None));
    let unnamed = LlmChoice { model: String::new(), ..choice("Claude") };
    assert_eq!(asked(unnamed, false).await, ("\"ours\" op".into(), None));
    let (words, warning) = asked(choice("openai"), false).await;
    assert_eq!(words, "\"ours\" op");
    assert!(warning.unwrap().contains("the server's own language model"));
    // An agent's address gets the agent's key, or none; never the operator's.
    let own = LlmChoice { url: Some(url.clone()), ..choice("anthropic") };
    assert_eq!(asked(own.clone(), false).await, ("\"their-model\" none".into(), None));
    let keyed = LlmChoice {
        token: Some("mine".into()),
        url: Some(format!("{url}/messages")),
        fallback_model: Some("second".into()),
        ..own.clone()
    };
    assert_eq!(asked(keyed.clone(), false).await.0, "\"their-model\" mine");
    assert_eq!(asked(keyed, true).await.0, "\"second\" mine");
    let unnamed = LlmChoice { model: String::new(), ..own };
    assert_eq!(asked(unnamed, false).await.0, "\"claude-haiku-4-5\" none");
}

#[tokio::test]
async fn an_agents_anthropic_server_is_under_the_policy_and_the_operators_is_trusted() {
    let url = echo_server().await;
    let operator = account(&url, None, None);
    let strict = registry(config(&[("anthropic", operator)]));
    let own = LlmChoice { url: Some(url), token: Some("mine".into()), ..choice("anthropic") };
    let (llm, _) = strict.llm(&own, "Ada", false);
    assert_eq!(
        answer(&llm, "hi").await,
        Err("The address of Anthropic is private, which this server does not allow".into())
    );
    let (llm, _) = strict.llm(&LlmChoice { model: String::new(), ..choice("claude") }, "A", false);
    assert_eq!(answer(&llm, "hi").await.unwrap(), "\"claude-haiku-4-5\" none");
}

#[tokio::test]
async fn options_are_read_by_the_provider_that_knows_them_and_the_others_are_reported() {
    let registry = open_registry(&[]);
    let warning = |provider: &str, options: serde_json::Value| {
        let own = LlmChoice {
            url: Some("http://127.0.0.1:1/v1".into()),
            options: options.as_object().cloned().unwrap(),
            ..choice(provider)
        };
        registry.llm(&own, "Ada", false).1
    };
    assert_eq!(warning("anthropic", json!({"max_tokens": 50, "temperature": 0.5})), None);
    let unknown = json!({"callback": "https://a.example", "max_tokens": 50});
    assert_eq!(
        warning("Claude", unknown.clone()).unwrap(),
        "The LLM options \"callback\" are unknown or not valid, and have no effect."
    );
    let all = warning("builtin", unknown.clone()).unwrap();
    assert!(all.contains("\"callback\", \"max_tokens\""), "{all}");
    assert!(warning("custom", unknown).unwrap().contains("options \"callback\" are"));
    assert_eq!(warning("custom", json!({})), None);
}

#[tokio::test]
async fn the_providers_of_the_configuration_serve_agents_that_name_none() {
    let url = echo_server().await;
    let mut config = config(&[
        ("openai", account("http://127.0.0.1:1/v1", None, None)),
        ("anthropic", account(&url, Some("op"), Some("ours"))),
    ]);
    config.defaults.llm = vec!["Claude".into(), "openai".into()];
    let registry = registry(config);
    let (llm, warning) = registry.llm(&choice(""), "Ada", false);
    assert_eq!((answer(&llm, "hi").await.unwrap(), warning), ("\"ours\" op".into(), None));
}

#[tokio::test]
async fn the_next_provider_answers_where_the_first_one_fails() {
    let url = echo_server().await;
    let registry = open_registry(&[("anthropic", account(&url, Some("op"), Some("ours")))]);
    let own = LlmChoice {
        url: Some("http://127.0.0.1:1/v1".into()),
        fallback: vec![choice("nobody"), choice("anthropic")],
        ..choice("custom")
    };
    let (llm, warning) = registry.llm(&own, "Ada", false);
    assert_eq!(answer(&llm, "hi").await.unwrap(), "\"their-model\" op");
    let expected = "The LLM provider \"nobody\" is not available on this server.";
    assert_eq!(warning.as_deref(), Some(expected), "it is no fallback");
    let (_, warning) = registry.llm(&own, "Ada", true);
    assert_eq!(warning, None, "that of the first model is about the fallbacks, too");
    let replaced = LlmChoice { fallback: vec![choice("anthropic")], ..choice("groq") };
    let expected = "The LLM provider \"groq\" needs an API key; Anthropic is used instead.";
    assert_eq!(registry.llm(&replaced, "Ada", false).1.as_deref(), Some(expected));
    // After three failures the first one is skipped.
    for _ in 0..2 {
        answer(&llm, "hi").await.unwrap();
    }
    let states = registry.provider_states();
    assert_eq!(states, [("llm", "anthropic", true), ("llm", "custom", false)]);
}

#[tokio::test]
async fn an_account_serves_the_workspaces_that_it_names() {
    let url = echo_server().await;
    let limited =
        Account { workspaces: Some(vec!["ours".into()]), ..account(&url, Some("op"), Some("m")) };
    let registry = open_registry(&[("anthropic", limited)]);
    let of = |workspace: &str| LlmChoice { workspace: workspace.into(), ..choice("anthropic") };
    let warning = registry.llm(&of("theirs"), "Ada", false).1.unwrap();
    assert!(warning.contains("needs an API key; the built-in answerer"), "{warning}");
    let (llm, warning) = registry.llm(&of("ours"), "Ada", false);
    assert_eq!((answer(&llm, "hi").await.unwrap(), warning), ("\"their-model\" op".into(), None));
}

#[tokio::test(start_paused = true)]
async fn a_slow_provider_is_hedged_if_the_configuration_says_so() {
    let timed = |first: f64| {
        json!({
            "providers": {"llm": {"first_token_s": first}, "tts": {"first_audio_s": first}},
            "utterances": [{"transcript": "hi", "reply": format!("After {first} s.")}],
        })
        .to_string()
    };
    let script = |first: f64| LlmChoice {
        provider: "script".into(),
        model: timed(first),
        ..LlmChoice::default()
    };
    let llm_choice = LlmChoice { fallback: vec![script(0.25)], ..script(3.0) };
    let voice = |first: f64| TtsChoice {
        provider: "script".into(),
        model_id: timed(first),
        ..TtsChoice::default()
    };
    let tts_choice = TtsChoice { fallback: vec![voice(0.25)], ..voice(3.0) };
    for (hedge, reply, first_token_at, first_sound_at) in [
        (None, "After 3 s.", 3_000, 3_000),
        (Some(HedgeDelays::default()), "After 0.25 s.", 1_750, 1_450),
    ] {
        let registry = registry(Config { allow_scripted: true, hedge, ..Config::default() });
        let (llm, _) = registry.llm(&llm_choice, "Ada", false);
        let (start, first) = (tokio::time::Instant::now(), Arc::new(OnceLock::new()));
        let at = Arc::clone(&first);
        let sink = Sink::new(move |event| {
            if matches!(event, Event::Text(_)) {
                at.get_or_init(|| start.elapsed().as_millis());
            }
        });
        let handle = llm.ask(request("hi"), sink);
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(handle);
        assert_eq!(first.get(), Some(&first_token_at));
        assert_eq!(answer(&llm, "hi").await.unwrap(), reply);

        let tts = registry.tts(&tts_choice).0.unwrap();
        let (start, first) = (tokio::time::Instant::now(), Arc::new(OnceLock::new()));
        let at = Arc::clone(&first);
        let sink = Sink::new(move |event| {
            if matches!(event, crate::tts::Event::Audio { .. }) {
                at.get_or_init(|| start.elapsed().as_millis());
            }
        });
        let request = crate::tts::Request { text: "Hello.".into(), ..Default::default() };
        let _handle = tts.speak(request, sink).unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(first.get(), Some(&first_sound_at));
    }
}

#[test]
fn a_warning_names_five_options_and_counts_the_others() {
    let names: Vec<String> = (0..2_000).map(|n| format!("{n}{}", "x".repeat(50))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let warning = ignored_options(Kind::Llm, &names).unwrap();
    assert!(warning.ends_with(" and 1995 more are unknown or not valid, and have no effect."));
    assert!(warning.contains("\"4xxx") && !warning.contains("\"5xxx"), "{warning}");
    assert!(warning.len() < 400, "{}", warning.len());
    let five = ignored_options(Kind::Stt, &names[..5]).unwrap();
    assert!(!five.contains("more"), "{five}");
    assert_eq!(ignored_options(Kind::Stt, &[]), None);
}
