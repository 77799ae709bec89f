//! A scenario file as a call, with the values that the page gives to what is left out.

use serde_json::{Value, json};

use super::case::{Action, Answer, Case, Do, Message, Part, S, Said, Settings, Tool, Us};

fn us(value: &Value) -> Option<Us> {
    value.as_f64().map(|seconds| (seconds * 1e6).round() as Us)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn message(value: &Value) -> Option<Message> {
    value.is_object().then(|| Message {
        say: text(&value["say"]),
        audio: us(&value["audio"]).unwrap_or(0),
        wait: us(&value["wait"]).unwrap_or(0),
    })
}

fn settings(value: &Value) -> Settings {
    let time = |key: &str, or: Us| us(&value[key]).unwrap_or(or);
    let flag = |key: &str, or: bool| value[key].as_bool().unwrap_or(or);
    let number = |key: &str, or: usize| value[key].as_u64().map_or(or, |n| n as usize);
    let optional = |key: &str, or: Option<Us>| value.get(key).map_or(or, us);
    Settings {
        min_delay: time("min_endpointing_delay", S / 2),
        max_delay: time("max_endpointing_delay", 6 * S),
        min_duration: time("min_interruption_duration", S / 2),
        min_words: number("min_interruption_words", 0),
        false_timeout: optional("false_interruption_timeout", Some(2 * S)),
        allow: flag("allow_interruptions", true),
        backchannels: flag("backchannels", false),
        preemptive: flag("preemptive_generation", true),
        preemptive_tts: flag("preemptive_tts", false),
        warmup: time("echo_warmup", 0),
        idle: optional("idle_timeout", None),
        tool_steps: number("max_tool_steps", 3),
        spacing: time("min_consecutive_speech_delay", 0),
        transcript_timeout: optional("transcript_timeout", None),
        threshold: (value["turn_threshold"].as_f64().unwrap_or(0.5) * 100.0).round() as i64,
        limit: optional("max_call_duration", None),
        warning_before: time("call_warning_before", 10 * S),
        idle_end: value["idle_end_after"].as_u64().map(|n| n as usize),
        greeting: message(&value["greeting"]),
        idle_messages: list(&value["idle_messages"]).iter().filter_map(message).collect(),
        warning: message(&value["warning_message"]),
        exit: message(&value["exit_message"]),
        error: message(&value["error_message"]),
    }
}

fn part(value: &Value) -> Part {
    let word = |pair: &Value| (text(&pair[0]), us(&pair[1]).unwrap_or(0));
    Part {
        say: text(&value["say"]),
        audio: us(&value["audio"]).unwrap_or(0),
        words: list(&value["words"]).iter().map(word).collect(),
        fails: value["fail"] == "tts",
    }
}

fn answer(value: &Value, (ttft, llm, ttfb): (Us, Us, Us)) -> Answer {
    let mut parts: Vec<Part> = if value["say"].is_null() { Vec::new() } else { vec![part(value)] };
    parts.extend(list(&value["parts"]).iter().map(part));
    parts.retain(|part| !part.say.is_empty());
    if let Some(first) = parts.first_mut() {
        first.fails |= value["fail"] == "tts";
    }
    let call = |call: &Value| (text(&call["tool"]), call.get("arguments").cloned().unwrap_or(json!({})));
    Answer {
        to: text(&value["to"]),
        parts,
        calls: list(&value["calls"]).iter().map(call).collect(),
        ttft: us(&value["llm_ttft"]).unwrap_or(ttft),
        llm: us(&value["llm_duration"]).unwrap_or(llm),
        ttfb: us(&value["tts_ttfb"]).unwrap_or(ttfb),
        fails: value["fail"] == "llm",
        guardrail: value["guardrail"] == true,
    }
}

fn tool(name: &str, value: &Value) -> Tool {
    Tool {
        name: name.to_owned(),
        takes: us(&value["takes"]).unwrap_or(0),
        returns: value["fail"]
            .as_str()
            .map_or_else(|| Ok(value["returns"].clone()), |why| Err(why.to_owned())),
        on_start: message(&value["on_start"]),
        on_delay: message(&value["on_delay"]),
        on_success: message(&value["on_success"]),
        on_error: message(&value["on_error"]),
        delay: us(&value["delay"]).unwrap_or(5 * S),
    }
}

fn action(value: &Value, allow: bool) -> Action {
    let what = match value["do"].as_str() {
        Some("interrupt") => Do::Interrupt,
        Some("respond") => Do::Respond(text(&value["text"])),
        Some("say") => Do::Say {
            text: text(&value["text"]),
            audio: us(&value["audio"]).unwrap_or(0),
            interrupt: value["interrupt"].as_bool().unwrap_or(true),
            allow: value["allow_interruptions"].as_bool().unwrap_or(allow),
        },
        Some("context") => Do::Context(text(&value["text"])),
        Some("end") => Do::End,
        _ => Do::Leave,
    };
    Action { at: us(&value["at"]).unwrap_or(0), what }
}

/// The call of a valid scenario file.
pub(crate) fn case(file: &Value) -> Case {
    let default = |key: &str, or: Us| us(&file["defaults"][key]).unwrap_or(or);
    let defaults =
        (default("llm_ttft", S / 10), default("llm_duration", S * 3 / 10), default("tts_ttfb", S / 5));
    let stt = default("stt_delay", S / 5);
    let settings = settings(&file["settings"]);
    let mut user: Vec<Said> = list(&file["user"])
        .iter()
        .map(|item| Said {
            from: us(&item["from"]).unwrap_or(0),
            to: us(&item["to"]).unwrap_or(0),
            text: item["text"].as_str().map(str::to_owned),
            stt: us(&item["stt_delay"]).unwrap_or(stt),
            over: item["end_of_turn"].as_f64().map(|over| (over * 100.0).round() as i64),
        })
        .collect();
    user.sort_by_key(|item| item.from);
    let mut actions: Vec<Action> =
        list(&file["actions"]).iter().map(|value| action(value, settings.allow)).collect();
    actions.sort_by_key(|action| action.at);
    let vad = |key: &str, or: Us| us(&file["vad"][key]).unwrap_or(or);
    Case {
        settings,
        vad: (vad("start", S / 20), vad("silence", S / 2)),
        defaults,
        user,
        answers: list(&file["replies"]).iter().map(|value| answer(value, defaults)).collect(),
        tools: file["tools"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| tool(name, value))
            .collect(),
        actions,
        until: us(&file["until"]).unwrap_or(0),
    }
}
