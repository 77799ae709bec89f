//! The differences of the servers.

use super::*;

/// The body of a request with these options, in the dialect of `provider`.
fn body_of(provider: &str, model: &str, options: Options, share_data: bool) -> Value {
    let settings = Settings { dialect: dialect(provider).unwrap(), options, share_data };
    let protocol = ChatCompletions { settings, signatures: Arc::default() };
    protocol.body(&question(), model, &[])
}

#[test]
fn each_server_gets_its_own_parameters() {
    let keys = |body: &Value| -> Vec<String> {
        let all = body.as_object().unwrap().keys();
        all.filter(|key| !["model", "messages", "stream", "stream_options"].contains(&key.as_str()))
            .cloned()
            .collect()
    };
    let plain = Options::default();
    let of = |provider: &str, model: &str| body_of(provider, model, plain, false);
    for provider in ["custom", "ollama", "vllm", "lmstudio", "together", "groq"] {
        assert!(keys(&of(provider, "tiny")).is_empty(), "{provider}");
    }
    assert_eq!(keys(&of("openai", "gpt-4.1-mini")), ["prompt_cache_key", "store"]);
    let thinking = of("openai", "gpt-5.1");
    assert_eq!(
        (&thinking["reasoning_effort"], &thinking["verbosity"], &thinking["store"]),
        (&json!("none"), &json!("low"), &json!(false))
    );
    assert_eq!(of("llamacpp", "tiny")["cache_prompt"], true);
    assert_eq!(
        of("openrouter", "tiny")["provider"],
        json!({"sort": "latency", "data_collection": "deny"})
    );
    let shared = body_of("openrouter", "tiny", plain, true);
    assert_eq!(shared["provider"], json!({"sort": "latency"}));
    assert_eq!(body_of("openai", "tiny", plain, true).get("store"), None);
}

#[test]
fn options_are_sent_under_the_servers_names_and_have_precedence() {
    let values = json!({
        "max_tokens": 9, "temperature": 0.5, "reasoning_effort": "high", "seed": 4, "stream": false,
    });
    let values = values.as_object().cloned().unwrap();
    let (options, ignored) = read_options(&values);
    assert_eq!(ignored, ["stream"]);
    let body = body_of("openai", "gpt-5.1", options, false);
    assert_eq!(
        (&body["max_completion_tokens"], &body["temperature"], &body["reasoning_effort"]),
        (&json!(9), &json!(0.5), &json!("high"))
    );
    assert_eq!((&body["seed"], &body["stream"]), (&json!(4), &json!(true)));
    let body = body_of("vllm", "tiny", options, false);
    assert_eq!((&body["max_tokens"], body.get("max_completion_tokens")), (&json!(9), None));
}

#[test]
fn requests_of_one_agent_share_a_cache_key_without_its_prompt() {
    let of = |prompt: &str| cache_key(&Request { prompt: prompt.into(), ..question() });
    assert_eq!(of("Be kind."), of("Be kind."));
    assert_ne!(of("Be kind."), of("Be brief."));
    assert_eq!(of("Be kind.").len(), 32);
}

#[test]
fn a_url_without_a_path_gets_the_vendors_path() {
    let of = |provider: &str, base: &str| {
        endpoint(dialect(provider).unwrap(), base, "chat/completions").map(|url| url.to_string())
    };
    let groq = "https://api.groq.com/openai/v1/chat/completions";
    for base in [
        "https://api.groq.com",
        "https://api.groq.com/openai/v1/",
        "wss://api.groq.com/openai/v1/chat/completions",
        "https://api.groq.com/openai/v1/models",
    ] {
        assert_eq!(of("groq", base).as_deref(), Some(groq), "{base}");
    }
    assert_eq!(
        of("custom", "http://127.0.0.1:9?v=1").as_deref(),
        Some("http://127.0.0.1:9/chat/completions?v=1")
    );
    assert_eq!(of("custom", "nonsense"), None);
}

#[tokio::test]
async fn headers_are_those_of_the_vendor() {
    let (server, url) = serve(Vec::new()).await;
    for provider in ["openrouter", "azure"] {
        let llm = client_of(provider, url.clone(), Options::default());
        assert_eq!(ask(&llm).await.text, "Hello.");
    }
    let seen = server.requests.lock().unwrap();
    let (router, azure) = (&seen[0].0, &seen[1].0);
    assert_eq!(router["authorization"], "Bearer secret");
    assert!(router["http-referer"].to_str().unwrap().starts_with("https://"));
    assert_eq!(router["x-title"], "Visavis");
    assert_eq!(azure["api-key"], "secret");
    assert!(azure.get("authorization").is_none() && azure.get("x-title").is_none());
}

#[tokio::test]
async fn a_wrong_tool_call_is_followed_by_one_request_without_tools() {
    let wrong = r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error",
        "code":"tool_use_failed","failed_generation":"<function=look"}}"#;
    let in_stream = || sse(&format!("event: error\ndata: {}\n\n", wrong.replace('\n', "")));
    let asked = async |answers: Vec<Response>| {
        let (server, url) = serve(answers).await;
        let request = Request { tools: vec![mock_server::tool("look")], ..question() };
        let llm = client_of("groq", url, Options::default());
        let reply = mock_server::ask_for(&llm, request).await;
        let seen = server.requests.lock().unwrap();
        let tools: Vec<bool> = seen.iter().map(|seen| seen.2.get("tools").is_some()).collect();
        (reply.text, reply.failed.map(|failed| failed.0), tools)
    };
    let answered = ("Hello.".to_owned(), None, vec![true, false]);
    assert_eq!(asked(vec![error_response(400, wrong)]).await, answered);
    assert_eq!(asked(vec![in_stream()]).await, answered);
    let refused = Some(ErrorKind::Rejected);
    let twice = vec![error_response(400, wrong), error_response(400, wrong)];
    assert_eq!(asked(twice).await, (String::new(), refused, vec![true, false]));
    let twice = vec![in_stream(), in_stream()];
    assert_eq!(asked(twice).await, (String::new(), refused, vec![true, false]));
}

/// What servers say of a model, or of themselves, that has no tools.
const WITHOUT_TOOLS: [(u16, &str); 9] = [
    (400, r#"{"error":{"message":"library/gemma3:4b does not support tools","type":"api_error"}}"#),
    (
        400,
        r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and
        --tool-call-parser to be set","type":"BadRequestError","code":400}"#,
    ),
    (500, r#"{"error":{"code":500,"message":"tools param requires --jinja flag"}}"#),
    (400, r#"{"error":{"message":"`tool calling` is not supported with this model"}}"#),
    (404, r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#),
    (400, r#"{"error":{"message":"This model does not support function calling"}}"#),
    (400, r#"{"error":"Model does not support tools"}"#),
    (400, r#"{"error":{"message":"Unknown parameter: 'tools'."}}"#),
    (422, r#"{"detail":[{"msg":"Extra inputs are not permitted","loc":["body","tools"]}]}"#),
];

#[tokio::test]
async fn a_model_without_tools_answers_without_them_and_one_warning_says_so() {
    for (status, words) in WITHOUT_TOOLS {
        let (server, url) = serve(vec![error_response(status, words)]).await;
        let llm = client_of("custom", url, Options::default());
        let request = || Request { tools: vec![mock_server::tool("end_call")], ..question() };
        let reply = mock_server::ask_for(&llm, request()).await;
        assert_eq!((&*reply.text, &reply.failed), ("Hello.", &None), "{words}");
        let warning =
            "The LLM server has no tools for the model \"tiny\"; the agent answers without them.";
        assert_eq!(reply.warnings, [warning]);
        let reply = mock_server::ask_for(&llm, request()).await;
        assert_eq!((&*reply.text, reply.warnings.len()), ("Hello.", 0), "it is remembered");
        let seen = server.requests.lock().unwrap();
        let tools: Vec<bool> = seen.iter().map(|seen| seen.2.get("tools").is_some()).collect();
        assert_eq!(tools, [true, false, false], "{words}");
    }
}

#[tokio::test]
async fn the_rules_of_a_guardrail_are_never_dropped() {
    let (status, words) = WITHOUT_TOOLS[0];
    let refusals = || vec![error_response(status, words), error_response(status, words)];
    let (server, url) = serve(refusals()).await;
    let llm = client_of("custom", url, Options::default());
    let rule = crate::llm::Tool { rule: Some("Never.".into()), ..mock_server::tool("law") };
    let request = || Request { tools: vec![rule.clone()], ..question() };
    for _ in 0..2 {
        let reply = mock_server::ask_for(&llm, request()).await;
        assert_eq!(reply.failed.unwrap().0, ErrorKind::Rejected);
    }
    let plain = Request { tools: vec![mock_server::tool("look")], ..question() };
    assert_eq!(mock_server::ask_for(&llm, plain).await.text, "Hello.");
    assert_eq!(server.count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn other_refusals_that_name_tools_are_failures() {
    for words in [
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "the model produced invalid content for tool 'look'",
    ] {
        let body = json!({"error": {"message": words}}).to_string();
        let (_, url) = serve(vec![error_response(400, &body)]).await;
        let request = Request { tools: vec![mock_server::tool("look")], ..question() };
        let llm = client_of("custom", url, Options::default());
        let reply = mock_server::ask_for(&llm, request).await;
        assert_eq!(reply.failed.unwrap().0, ErrorKind::Rejected, "{words}");
    }
}

#[tokio::test]
async fn parameters_that_a_model_refuses_are_dropped_one_by_one() {
    let refusal = |name: &str| {
        let message = format!("Unsupported parameter: '{name}' is not supported with this model.");
        error_response(400, &json!({"error": {"message": message, "param": name}}).to_string())
    };
    let (server, url) = serve(vec![refusal("temperature"), refusal("top_p")]).await;
    let options =
        Options { temperature: Some(1.0), top_p: Some(1.0), seed: Some(1), ..Options::default() };
    let llm = client_of("openai", url, options);
    assert_eq!(ask(&llm).await.text, "Hello.");
    assert_eq!(ask(&llm).await.text, "Hello.");
    let seen = server.requests.lock().unwrap();
    let sent: Vec<[bool; 3]> = seen
        .iter()
        .map(|seen| ["temperature", "top_p", "seed"].map(|name| seen.2.get(name).is_some()))
        .collect();
    let last = [false, false, true];
    assert_eq!(sent, [[true, true, true], [false, true, true], last, last]);
}

#[tokio::test]
async fn an_error_within_a_stream_is_one_sentence() {
    let comment = ": OPENROUTER PROCESSING\n\n";
    let error = r#"data: {"error":{"code":502,"message":"the key secret broke"},"choices":[]}"#;
    let (_, url) = serve(vec![sse(&(comment.to_owned() + &text_frame("Well, ") + error))]).await;
    let reply = ask(&client_of("openrouter", url, Options::default())).await;
    let words = "OpenRouter failed with 502: the key *** broke";
    assert_eq!(reply.text, "Well, ");
    assert_eq!(reply.failed, Some((ErrorKind::Failed, words.to_owned())));
}

#[tokio::test]
async fn warming_makes_ollama_load_its_model() {
    let (server, url) = serve(vec![error_response(404, "no such model")]).await;
    let llm = client_of("ollama", url, Options::default());
    llm.warm_up();
    while server.count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let seen = server.requests.lock().unwrap();
    let (_, uri, body, _) = &seen[0];
    assert_eq!(uri.path(), "/api/generate");
    assert_eq!((&body["model"], &body["prompt"]), (&json!("tiny"), &json!("")));
    assert!(body["keep_alive"].is_string());
}
