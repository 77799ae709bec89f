//! Reads a scenario file as a call, with the page's defaults for absent values.

use serde_json::{Value, json};

use super::case::{
    ActionKind, Case, Hint, Message, Micros, SECOND, ScriptedAction, ScriptedReply,
    ScriptedSegment, ScriptedSpeech, ScriptedTool, Settings,
};

fn micros(value: &Value) -> Option<Micros> {
    value.as_f64().map(|seconds| (seconds * 1e6).round() as Micros)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn message(value: &Value) -> Option<Message> {
    value.is_object().then(|| Message {
        text: text(&value["say"]),
        audio_duration: micros(&value["audio"]).unwrap_or(0),
        delay: micros(&value["wait"]).unwrap_or(0),
    })
}

fn settings(value: &Value) -> Settings {
    let time = |key: &str, or: Micros| micros(&value[key]).unwrap_or(or);
    let flag = |key: &str, or: bool| value[key].as_bool().unwrap_or(or);
    let number = |key: &str, or: usize| value[key].as_u64().map_or(or, |n| n as usize);
    let optional = |key: &str, or: Option<Micros>| value.get(key).map_or(or, micros);
    Settings {
        min_endpointing_delay: time("min_endpointing_delay", SECOND / 2),
        max_endpointing_delay: time("max_endpointing_delay", 6 * SECOND),
        min_interruption_duration: time("min_interruption_duration", SECOND / 2),
        min_interruption_words: number("min_interruption_words", 0),
        false_interruption_timeout: optional("false_interruption_timeout", Some(2 * SECOND)),
        allow_interruptions: flag("allow_interruptions", true),
        backchannels: flag("backchannels", false),
        preemptive_generation: flag("preemptive_generation", true),
        preemptive_tts: flag("preemptive_tts", false),
        echo_warmup: time("echo_warmup", 0),
        idle_timeout: optional("idle_timeout", None),
        max_tool_steps: number("max_tool_steps", 3),
        min_consecutive_speech_delay: time("min_consecutive_speech_delay", 0),
        transcript_timeout: optional("transcript_timeout", None),
        turn_threshold: (value["turn_threshold"].as_f64().unwrap_or(0.5) * 100.0).round() as i64,
        max_call_duration: optional("max_call_duration", None),
        call_warning_before: time("call_warning_before", 10 * SECOND),
        idle_end_after: value["idle_end_after"].as_u64().map(|n| n as usize),
        greeting: message(&value["greeting"]),
        recording_message: message(&value["recording_message"]),
        idle_messages: list(&value["idle_messages"]).iter().filter_map(message).collect(),
        warning_message: message(&value["warning_message"]),
        exit_message: message(&value["exit_message"]),
        error_message: message(&value["error_message"]),
    }
}

fn segment(value: &Value) -> ScriptedSegment {
    let word = |pair: &Value| (text(&pair[0]), micros(&pair[1]).unwrap_or(0));
    ScriptedSegment {
        text: text(&value["say"]),
        audio_duration: micros(&value["audio"]).unwrap_or(0),
        word_times: list(&value["words"]).iter().map(word).collect(),
        tts_fails: value["fail"] == "tts",
    }
}

fn reply(value: &Value, (ttft, llm, ttfb): (Micros, Micros, Micros)) -> ScriptedReply {
    let mut parts: Vec<ScriptedSegment> =
        if value["say"].is_null() { Vec::new() } else { vec![segment(value)] };
    parts.extend(list(&value["parts"]).iter().map(segment));
    parts.retain(|part| !part.text.is_empty());
    if let Some(first) = parts.first_mut() {
        first.tts_fails |= value["fail"] == "tts";
    }
    let call =
        |call: &Value| (text(&call["tool"]), call.get("arguments").cloned().unwrap_or(json!({})));
    ScriptedReply {
        in_reply_to: text(&value["to"]),
        segments: parts,
        tool_calls: list(&value["calls"]).iter().map(call).collect(),
        llm_ttft: micros(&value["llm_ttft"]).unwrap_or(ttft),
        llm_duration: micros(&value["llm_duration"]).unwrap_or(llm),
        tts_ttfb: micros(&value["tts_ttfb"]).unwrap_or(ttfb),
        llm_fails: value["fail"] == "llm",
        is_guardrail: value["guardrail"] == true,
    }
}

fn tool(name: &str, value: &Value) -> ScriptedTool {
    ScriptedTool {
        name: name.to_owned(),
        duration: micros(&value["takes"]).unwrap_or(0),
        returns: value["fail"]
            .as_str()
            .map_or_else(|| Ok(value["returns"].clone()), |why| Err(why.to_owned())),
        on_start: message(&value["on_start"]),
        on_delay: message(&value["on_delay"]),
        on_success: message(&value["on_success"]),
        on_error: message(&value["on_error"]),
        delay: micros(&value["delay"]).unwrap_or(5 * SECOND),
        ends_call: value["ends_call"] == true,
    }
}

fn action(value: &Value, allow: bool) -> ScriptedAction {
    let what = match value["do"].as_str() {
        Some("interrupt") => ActionKind::Interrupt,
        Some("respond") => ActionKind::Respond(text(&value["text"])),
        Some("say") => ActionKind::Say {
            text: text(&value["text"]),
            audio_duration: micros(&value["audio"]).unwrap_or(0),
            interrupt: value["interrupt"].as_bool().unwrap_or(true),
            allow_interruptions: value["allow_interruptions"].as_bool().unwrap_or(allow),
        },
        Some("context") => ActionKind::Context(text(&value["text"])),
        Some("end") => ActionKind::End,
        _ => ActionKind::Leave,
    };
    ScriptedAction { at: micros(&value["at"]).unwrap_or(0), kind: what }
}

/// Parses a valid scenario file.
pub(crate) fn parse_case(file: &Value) -> Case {
    let default = |key: &str, or: Micros| micros(&file["defaults"][key]).unwrap_or(or);
    let defaults = (
        default("llm_ttft", SECOND / 10),
        default("llm_duration", SECOND * 3 / 10),
        default("tts_ttfb", SECOND / 5),
    );
    let stt = default("stt_delay", SECOND / 5);
    let settings = settings(&file["settings"]);
    let mut user: Vec<ScriptedSpeech> = list(&file["user"])
        .iter()
        .map(|item| ScriptedSpeech {
            from: micros(&item["from"]).unwrap_or(0),
            to: micros(&item["to"]).unwrap_or(0),
            text: item["text"].as_str().map(str::to_owned),
            stt_delay: micros(&item["stt_delay"]).unwrap_or(stt),
            end_of_turn: item["end_of_turn"].as_f64().map(|over| (over * 100.0).round() as i64),
        })
        .collect();
    user.sort_by_key(|item| item.from);
    let hints = list(&file["hints"]).iter().filter_map(|value| {
        let (hint, _) = Hint::ALL.into_iter().find(|(_, name)| value["hint"] == *name)?;
        Some((micros(&value["at"])?, hint))
    });
    let mut actions: Vec<ScriptedAction> = list(&file["actions"])
        .iter()
        .map(|value| action(value, settings.allow_interruptions))
        .collect();
    actions.sort_by_key(|action| action.at);
    let vad = |key: &str, or: Micros| micros(&file["vad"][key]).unwrap_or(or);
    Case {
        settings,
        vad: (vad("start", SECOND / 20), vad("silence", SECOND / 2)),
        defaults,
        user,
        hints: hints.collect(),
        replies: list(&file["replies"]).iter().map(|value| reply(value, defaults)).collect(),
        tools: file["tools"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| tool(name, value))
            .collect(),
        actions,
        until: micros(&file["until"]).unwrap_or(0),
    }
}
