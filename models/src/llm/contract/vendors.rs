//! How the servers of the vendors write a reply.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle as Runtime;

use super::{TOOL, Timeouts, Vendor, Wire, client};
use crate::ErrorKind::{Busy, Failed, InvalidKey, NoCredit, Rejected};
use crate::hosted::loopback::KEY;
use crate::llm::anthropic::{self, Anthropic};
use crate::llm::gemini::Gemini;
use crate::llm::openai::{OpenAi, Options, Settings, dialect};
use crate::llm::responses::OpenAiResponses;
use crate::llm::{Config, Llm, RefusedParameters};

/// Every hosted LLM. The dialects differ in their requests, and in what [`Wire::opening`] and the
/// errors contain.
pub(super) static VENDORS: [Vendor; 11] = [
    Vendor { label: "Anthropic", name: "Anthropic", make: anthropic, wire: &ANTHROPIC },
    Vendor { label: "OpenAI responses", name: "OpenAI", make: responses, wire: &RESPONSES },
    Vendor { label: "Gemini", name: "Google", make: gemini, wire: &GEMINI },
    Vendor { label: "OpenAI", name: "OpenAI", make: |url| chat("openai", url), wire: &CHAT },
    Vendor { label: "Groq", name: "Groq", make: |url| chat("groq", url), wire: &CHAT },
    Vendor {
        label: "OpenRouter",
        name: "OpenRouter",
        make: |url| chat("openrouter", url),
        wire: &CHAT,
    },
    Vendor { label: "Together", name: "Together", make: |url| chat("together", url), wire: &CHAT },
    Vendor { label: "Ollama", name: "Ollama", make: |url| chat("ollama", url), wire: &CHAT },
    Vendor { label: "vLLM", name: "vLLM", make: |url| chat("vllm", url), wire: &CHAT },
    Vendor {
        label: "llama.cpp",
        name: "llama.cpp",
        make: |url| chat("llamacpp", url),
        wire: &CHAT,
    },
    Vendor {
        label: "custom",
        name: "the LLM server",
        make: |url| chat("custom", url),
        wire: &CHAT,
    },
];

fn config(url: String) -> Config {
    let (token, model) = (Some(KEY.into()), "model-x".into());
    Config { url, token, model, timeouts: Timeouts::default() }
}

fn chat(provider: &str, url: String) -> Arc<dyn Llm> {
    let dialect = dialect(provider).expect(provider);
    let settings = Settings { dialect, options: Options::default(), share_data: false };
    let refused = RefusedParameters::default();
    let config = config(format!("{url}/v1"));
    Arc::new(OpenAi::with_settings(config, settings, client(), refused, Runtime::current()))
}

fn responses(url: String) -> Arc<dyn Llm> {
    let (options, refused) = (Options::default(), RefusedParameters::default());
    let config = config(format!("{url}/v1"));
    Arc::new(OpenAiResponses::new(config, options, false, client(), refused, Runtime::current()))
}

fn gemini(url: String) -> Arc<dyn Llm> {
    let (options, refused) = (Options::default(), RefusedParameters::default());
    Arc::new(Gemini::new(config(url), options, client(), refused, Runtime::current()))
}

fn anthropic(url: String) -> Arc<dyn Llm> {
    let Config { url, token, model, timeouts } = config(url);
    let options = anthropic::Options::default();
    let config = anthropic::Config { url, token, model, options, timeouts };
    Arc::new(Anthropic::new(config, client(), RefusedParameters::default(), Runtime::current()))
}

fn choice(delta: &Value, finish_reason: &Value) -> Value {
    json!({
        "id": "c1", "object": "chat.completion.chunk", "model": "model-x",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    })
}

static CHAT: Wire = Wire {
    path: "/chat/completions",
    opening: || vec![choice(&json!({"role": "assistant", "content": ""}), &Value::Null)],
    text: |text| choice(&json!({ "content": text }), &Value::Null),
    call: |n, arguments| {
        let arguments = arguments.to_string();
        let (first, rest) = arguments.split_at(arguments.len() / 2);
        let function = json!({"name": TOOL, "arguments": first});
        let begin = json!({
            "index": n, "id": format!("call_{n}"), "type": "function", "function": function,
        });
        let more = json!({"index": n, "function": {"arguments": rest}});
        let delta = |fragment| choice(&json!({"tool_calls": [fragment]}), &Value::Null);
        vec![delta(begin), delta(more)]
    },
    end: |calls| {
        let reason = if calls { "tool_calls" } else { "stop" };
        let usage = json!({"prompt_tokens": 120, "completion_tokens": 15, "total_tokens": 135});
        vec![choice(&json!({}), &json!(reason)), json!({"choices": [], "usage": usage})]
    },
    done: Some("[DONE]"),
    free: &[],
    errors: &[
        (r#"{"error":{"code":"invalid_api_key","message":"Incorrect: KEY"}}"#, InvalidKey),
        (r#"{"error":{"code":402,"message":"Insufficient credits for KEY"}}"#, NoCredit),
        (r#"{"error":{"code":429,"message":"slow down, KEY"}}"#, Busy),
        (r#"{"error":{"type":"invalid_request_error","message":"bad KEY"}}"#, Rejected),
        (r#"{"error":{"code":"model_not_found","message":"no model x, KEY"}}"#, Rejected),
        (r#"{"error":{"code":502,"message":"oops KEY"}}"#, Failed),
        (r#"{"error":"oops KEY"}"#, Failed),
    ],
    unknown: &[r#"{"choices":[],"x_new":{"a":[1]}}"#, r#"{"object":"x_new"}"#],
};

static RESPONSES: Wire = Wire {
    path: "/responses",
    opening: || {
        let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
        vec![
            json!({"type": "response.created", "response": {"id": "r1", "output": []}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        ]
    },
    text: |text| {
        json!({
            "type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "item_id": "msg_1", "delta": text,
        })
    },
    call: |n, arguments| {
        let (place, id) = (n + 1, format!("call_{n}"));
        let item = |arguments: &str| {
            json!({
                "id": format!("fc_{n}"), "type": "function_call", "call_id": id, "name": TOOL,
                "arguments": arguments,
            })
        };
        let whole = arguments.to_string();
        vec![
            json!({
                "type": "response.output_item.added", "output_index": place, "item": item(""),
            }),
            json!({
                "type": "response.function_call_arguments.delta", "output_index": place,
                "delta": whole,
            }),
            json!({
                "type": "response.output_item.done", "output_index": place, "item": item(&whole),
            }),
        ]
    },
    end: |_| {
        let usage = json!({"input_tokens": 120, "output_tokens": 15});
        let response = json!({"id": "r1", "status": "completed", "output": [], "usage": usage});
        vec![json!({"type": "response.completed", "response": response})]
    },
    done: None,
    free: &[],
    errors: &[
        (r#"{"type":"error","code":"invalid_api_key","message":"Incorrect: KEY"}"#, InvalidKey),
        (
            r#"{"type":"response.failed","response":{"error":
            {"code":"insufficient_quota","message":"KEY"}}}"#,
            NoCredit,
        ),
        (
            r#"{"type":"response.failed","response":{"error":
            {"code":"rate_limit_exceeded","message":"slow down, KEY"}}}"#,
            Busy,
        ),
        (r#"{"type":"error","error":{"code":"model_not_found","message":"KEY"}}"#, Rejected),
        (
            r#"{"type":"response.failed","response":{"error":
            {"code":"server_error","message":"oops KEY"}}}"#,
            Failed,
        ),
    ],
    unknown: &[
        r#"{"type":"response.x_new.delta","output_index":0,"delta":"No."}"#,
        r#"{"type":"response.output_item.added","output_index":9,"item":{"type":"x_new"}}"#,
        r#"{"type":"response.output_item.done","output_index":9,"item":{"type":"x_new"}}"#,
    ],
};

fn part(part: &Value, finish_reason: &Value) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
    if !finish_reason.is_null() {
        candidate["finishReason"] = finish_reason.clone();
    }
    json!({"candidates": [candidate], "responseId": "r1", "modelVersion": "model-x"})
}

static GEMINI: Wire = Wire {
    path: ":streamGenerateContent?alt=sse",
    opening: || vec![part(&json!({"text": "Hm.", "thought": true}), &Value::Null)],
    text: |text| part(&json!({ "text": text }), &Value::Null),
    call: |n, arguments| {
        let call = json!({"id": format!("call_{n}"), "name": TOOL, "args": arguments});
        vec![part(&json!({ "functionCall": call }), &Value::Null)]
    },
    end: |_| {
        let mut last = part(&json!({"text": ""}), &json!("STOP"));
        last["usageMetadata"] = json!({
            "promptTokenCount": 120, "candidatesTokenCount": 11, "thoughtsTokenCount": 4,
        });
        vec![last]
    },
    done: None,
    free: &["args"],
    errors: &[
        (
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid: KEY"}}"#,
            InvalidKey,
        ),
        (
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow down, KEY"}}"#,
            Busy,
        ),
        (r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no model x, KEY"}}"#, Rejected),
        (r#"{"error":{"code":400,"message":"bad KEY"}}"#, Rejected),
        (r#"[{"error":{"code":503,"status":"UNAVAILABLE","message":"oops KEY"}}]"#, Failed),
    ],
    unknown: &[
        r#"{"candidates":[{"content":{"parts":[{"xNew":{"text":"No."}}],"role":"model"}}]}"#,
        r#"{"xNew":[1]}"#,
    ],
};

fn block(index: usize, kind: &str, content: &Value) -> Value {
    let field = if kind == "content_block_start" { "content_block" } else { "delta" };
    json!({"type": kind, "index": index, field: content})
}

static ANTHROPIC: Wire = Wire {
    path: "/v1/messages",
    opening: || {
        let usage = json!({
            "input_tokens": 20, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 60,
            "output_tokens": 1,
        });
        let message = json!({"id": "m1", "type": "message", "content": [], "usage": usage});
        vec![
            json!({"type": "message_start", "message": message}),
            block(0, "content_block_start", &json!({"type": "text", "text": ""})),
            json!({"type": "ping"}),
        ]
    },
    text: |text| block(0, "content_block_delta", &json!({"type": "text_delta", "text": text})),
    call: |n, arguments| {
        let (index, arguments) = (n + 1, arguments.to_string());
        let (first, rest) = arguments.split_at(arguments.len() / 2);
        let json = |part: &str| {
            let delta = json!({"type": "input_json_delta", "partial_json": part});
            block(index, "content_block_delta", &delta)
        };
        let start = json!({
            "type": "tool_use", "id": format!("toolu_{n}"), "name": TOOL, "input": {},
        });
        vec![
            block(index, "content_block_start", &start),
            json(""),
            json(first),
            json(rest),
            json!({"type": "content_block_stop", "index": index}),
        ]
    },
    end: |calls| {
        let reason = if calls { "tool_use" } else { "end_turn" };
        vec![
            json!({"type": "content_block_stop", "index": 0}),
            json!({
                "type": "message_delta", "delta": {"stop_reason": reason},
                "usage": {"output_tokens": 15},
            }),
            json!({"type": "message_stop"}),
        ]
    },
    done: None,
    free: &["input"],
    errors: &[
        (
            r#"{"type":"error","error":{"type":"authentication_error","message":"bad KEY"}}"#,
            InvalidKey,
        ),
        (r#"{"type":"error","error":{"type":"billing_error","message":"KEY"}}"#, NoCredit),
        (r#"{"type":"error","error":{"type":"rate_limit_error","message":"KEY"}}"#, Busy),
        (r#"{"type":"error","error":{"type":"not_found_error","message":"model, KEY"}}"#, Rejected),
        (r#"{"type":"error","error":{"type":"invalid_request_error","message":"KEY"}}"#, Rejected),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"KEY"}}"#, Failed),
        (r#"{"type":"error","error":{"type":"api_error","message":"oops KEY"}}"#, Failed),
    ],
    unknown: &[
        r#"{"type":"x_new","index":0,"delta":{"text":"No."}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"x_new","text":"No."}}"#,
    ],
};
