//! The scenario file: a strict parser.

use core::time::Duration;

use serde_json::{Map, Value};

use crate::fields::{Object, time};
use crate::settings::{BadSetting, Message, Settings};
use crate::strict::{self, on_one_line};

/// The largest scenario file, in bytes.
pub const LARGEST: usize = 16 << 20;

/// A scenario is malformed: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadScenario {
    /// Path of the field, such as `user[1].from`; `file` for the file as a whole.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl BadScenario {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        let field = on_one_line(field.into());
        // A key without a letter.
        let field = if field.is_empty() { "\"\"".into() } else { field };
        Self { field, reason: on_one_line(reason.into()) }
    }
}

type Parsed<T> = Result<T, BadScenario>;

/// A conversation as a script.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) settings: Settings,
    pub(crate) vad: (Duration, Duration),
    pub(crate) defaults: Defaults,
    pub(crate) user: Vec<Said>,
    pub(crate) replies: Vec<Answer>,
    pub(crate) tools: Vec<(String, Tool)>,
    pub(crate) actions: Vec<Action>,
    pub(crate) until: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) stt_delay: Duration,
    pub(crate) llm_ttft: Duration,
    pub(crate) llm_duration: Duration,
    pub(crate) tts_ttfb: Duration,
}

/// The user's voice.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) text: Option<String>,
    pub(crate) stt_delay: Duration,
    pub(crate) end_of_turn: Option<f64>,
}

/// What the scripted LLM answers.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) to: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) llm_ttft: Duration,
    pub(crate) llm_duration: Duration,
    pub(crate) tts_ttfb: Duration,
    pub(crate) llm_fails: bool,
    pub(crate) guardrail: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) say: String,
    pub(crate) audio: Duration,
    pub(crate) words: Vec<(String, Duration)>,
    pub(crate) fails: bool,
}

#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) takes: Duration,
    pub(crate) result: Result<Value, String>,
    pub(crate) on_start: Option<Message>,
    pub(crate) on_delay: Option<Message>,
    pub(crate) on_success: Option<Message>,
    pub(crate) on_error: Option<Message>,
    pub(crate) delay: Duration,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) at: Duration,
    pub(crate) act: Act,
}

#[derive(Debug)]
pub(crate) enum Act {
    Interrupt,
    Respond(String),
    Say { text: String, audio: Duration, interrupt: bool, allow_interruptions: Option<bool> },
    Context(String),
    End,
    Leave,
}

/// Reads a scenario.
pub(crate) fn parse(json: &[u8]) -> Parsed<Scenario> {
    if json.len() > LARGEST {
        return Err(BadScenario::new("file", "is larger than 16 MiB"));
    }
    let value = strict::read(json).map_err(|bad| match bad {
        strict::Bad::Json { path, error } => {
            let field = if path.is_empty() { "file".into() } else { path };
            BadScenario::new(field, format!("is no JSON: {error}"))
        }
        strict::Bad::Twice { path, line } => {
            BadScenario::new(path, format!("stands there twice, again in line {line}"))
        }
    })?;
    let file = Object::new("", &value)?;
    file.only(&["name", "settings", "vad", "defaults", "user", "replies", "tools", "actions", "until"])?;
    file.text("name")?;
    let until = file.needed_time("until")?;
    let settings = match file.object("settings")? {
        Some(settings) => read_settings(&settings)?,
        None => Settings::scenario(),
    };
    let mut vad = (Duration::from_millis(50), Duration::from_millis(500));
    if let Some(object) = file.object("vad")? {
        object.only(&["start", "silence"])?;
        vad = (object.time("start")?.unwrap_or(vad.0), object.time("silence")?.unwrap_or(vad.1));
    }
    let mut defaults = Defaults {
        stt_delay: Duration::from_millis(200),
        llm_ttft: Duration::from_millis(100),
        llm_duration: Duration::from_millis(300),
        tts_ttfb: Duration::from_millis(200),
    };
    if let Some(object) = file.object("defaults")? {
        object.only(&["stt_delay", "llm_ttft", "llm_duration", "tts_ttfb", "tts_duration"])?;
        object.time("tts_duration")?;
        defaults = Defaults {
            stt_delay: object.time("stt_delay")?.unwrap_or(defaults.stt_delay),
            llm_ttft: object.time("llm_ttft")?.unwrap_or(defaults.llm_ttft),
            llm_duration: object.time("llm_duration")?.unwrap_or(defaults.llm_duration),
            tts_ttfb: object.time("tts_ttfb")?.unwrap_or(defaults.tts_ttfb),
        };
    }
    let mut user =
        file.list("user")?.iter().map(|item| read_said(item, defaults)).collect::<Parsed<Vec<_>>>()?;
    user.sort_by_key(|item| item.from);
    let replies =
        file.list("replies")?.iter().map(|item| read_answer(item, defaults)).collect::<Parsed<_>>()?;
    let actions = file.list("actions")?.iter().map(read_action).collect::<Parsed<_>>()?;
    let mut tools = Vec::new();
    if let Some(object) = file.object("tools")? {
        for name in object.map.keys() {
            let tool = object
                .object(name)?
                .ok_or_else(|| BadScenario::new(object.path(name), "must be an object"))?;
            tools.push((name.clone(), read_tool(&tool)?));
        }
    }
    Ok(Scenario { settings, vad, defaults, user, replies, tools, actions, until })
}

fn read_settings(object: &Object<'_>) -> Parsed<Settings> {
    let mut settings = Settings::scenario();
    for (key, value) in object.map {
        let named = |bad: BadSetting| BadScenario::new(object.path(&bad.field), bad.reason);
        if settings.set(key, value).map_err(named)? {
            continue;
        }
        match key.as_str() {
            "greeting" => settings.greeting = object.message(key, true)?,
            "warning_message" => settings.warning_message = object.message(key, false)?,
            "exit_message" => settings.exit_message = object.message(key, false)?,
            "error_message" => settings.error_message = object.message(key, false)?,
            "idle_messages" => {
                settings.idle_messages =
                    object.list(key)?.iter().map(|item| read_message(item, false)).collect::<Parsed<_>>()?;
            }
            _ => return Err(BadScenario::new(object.path(key), "is unknown")),
        }
    }
    settings.spec().map_err(|bad| BadScenario::new(object.path(&bad.field), bad.reason))?;
    Ok(settings)
}

/// `{say, audio}`, with `wait` where that is allowed.
pub(crate) fn read_message(object: &Object<'_>, wait: bool) -> Parsed<Message> {
    object.only(if wait { &["say", "audio", "wait"] } else { &["say", "audio"] })?;
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let say = object.needed_text("say")?;
    Ok(Message {
        say,
        audio: seconds(object.time("audio")?),
        wait: if wait { seconds(object.time("wait")?) } else { 0.0 },
    })
}

fn read_said(object: &Object<'_>, defaults: Defaults) -> Parsed<Said> {
    object.only(&["from", "to", "text", "stt_delay", "end_of_turn"])?;
    let (from, to) = (object.needed_time("from")?, object.needed_time("to")?);
    if to < from {
        return Err(BadScenario::new(object.path("to"), "must not be before from"));
    }
    let end_of_turn = object.number("end_of_turn")?;
    if end_of_turn.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return Err(BadScenario::new(object.path("end_of_turn"), "must be between 0 and 1"));
    }
    let stt_delay = object.time("stt_delay")?.unwrap_or(defaults.stt_delay);
    Ok(Said { from, to, text: object.text("text")?, stt_delay, end_of_turn })
}

fn read_answer(object: &Object<'_>, defaults: Defaults) -> Parsed<Answer> {
    let keys = [
        "to",
        "say",
        "audio",
        "llm_ttft",
        "llm_duration",
        "tts_ttfb",
        "tts_duration",
        "calls",
        "parts",
        "words",
        "fail",
        "guardrail",
    ];
    object.only(&keys)?;
    object.time("tts_duration")?;
    let mut parts = Vec::new();
    let audio = object.time("audio")?.unwrap_or_default();
    let say = object.text("say")?;
    let words = read_words(object, say.as_deref())?;
    if let Some(say) = say {
        parts.push(Part { say, audio, words, fails: false });
    }
    for part in object.list("parts")? {
        part.only(&["say", "audio", "words", "fail"])?;
        let say = part.text("say")?.unwrap_or_default();
        let words = read_words(&part, Some(&say))?;
        let fails = part.one_of("fail", &["tts"])?.is_some();
        parts.push(Part { say, audio: part.time("audio")?.unwrap_or_default(), words, fails });
    }
    parts.retain(|part| !part.say.trim().is_empty());
    let fail = object.one_of("fail", &["llm", "tts"])?;
    if let Some(first) = parts.first_mut().filter(|_| fail == Some("tts")) {
        first.fails = true;
    }
    let calls = object.list("calls")?;
    let calls = calls.iter().map(|call| {
        call.only(&["tool", "arguments"])?;
        let arguments = call
            .object("arguments")?
            .map_or_else(|| Value::Object(Map::new()), |o| Value::Object(o.map.clone()));
        Ok((call.needed_text("tool")?, arguments))
    });
    Ok(Answer {
        to: object.needed_text("to")?,
        parts,
        calls: calls.collect::<Parsed<_>>()?,
        llm_ttft: object.time("llm_ttft")?.unwrap_or(defaults.llm_ttft),
        llm_duration: object.time("llm_duration")?.unwrap_or(defaults.llm_duration),
        tts_ttfb: object.time("tts_ttfb")?.unwrap_or(defaults.tts_ttfb),
        llm_fails: fail == Some("llm"),
        guardrail: object.flag("guardrail")?.unwrap_or(false),
    })
}

fn read_words(object: &Object<'_>, say: Option<&str>) -> Parsed<Vec<(String, Duration)>> {
    let path = object.path("words");
    let Some(list) = object.map.get("words") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or_else(|| BadScenario::new(&path, "must be a list"))?;
    let mut words: Vec<(String, Duration)> = Vec::new();
    for (index, word) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let pair = word.as_array().map(Vec::as_slice);
        let Some([Value::String(text), end]) = pair else {
            return Err(BadScenario::new(path, "must be [text, end]"));
        };
        let end = time(&path, end)?;
        if words.last().is_some_and(|(_, before)| end < *before) {
            return Err(BadScenario::new(path, "must not end before the word before it"));
        }
        words.push((text.clone(), end));
    }
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let spelled: String = words.iter().map(|(text, _)| bare(text)).collect();
    if !list.is_empty() && spelled != bare(say.unwrap_or_default()) {
        return Err(BadScenario::new(path, "must spell what is said"));
    }
    Ok(words)
}

fn read_tool(object: &Object<'_>) -> Parsed<Tool> {
    object.only(&["takes", "returns", "fail", "on_start", "on_delay", "on_success", "on_error", "delay"])?;
    let result = match (object.text("fail")?, object.map.get("returns")) {
        (Some(reason), _) => Err(reason),
        (None, Some(value)) => Ok(value.clone()),
        (None, None) => return Err(BadScenario::new(object.path("returns"), "is missing")),
    };
    let message =
        |key| object.present(key).then(|| object.message(key, false)).transpose().map(Option::flatten);
    Ok(Tool {
        takes: object.needed_time("takes")?,
        result,
        on_start: message("on_start")?,
        on_delay: message("on_delay")?,
        on_success: message("on_success")?,
        on_error: message("on_error")?,
        delay: object.time("delay")?.unwrap_or(Duration::from_secs(5)),
    })
}

fn read_action(object: &Object<'_>) -> Parsed<Action> {
    let at = object.needed_time("at")?;
    let what = object.needed_text("do")?;
    let act = match what.as_str() {
        "say" => {
            object.only(&["at", "do", "text", "audio", "interrupt", "allow_interruptions"])?;
            Act::Say {
                text: object.needed_text("text")?,
                audio: object.needed_time("audio")?,
                interrupt: object.flag("interrupt")?.unwrap_or(true),
                allow_interruptions: object.flag("allow_interruptions")?,
            }
        }
        "respond" | "context" => {
            object.only(&["at", "do", "text"])?;
            let text = object.needed_text("text")?;
            if what == "respond" { Act::Respond(text) } else { Act::Context(text) }
        }
        "interrupt" | "end" | "leave" => {
            object.only(&["at", "do"])?;
            match what.as_str() {
                "interrupt" => Act::Interrupt,
                "end" => Act::End,
                _ => Act::Leave,
            }
        }
        _ => {
            return Err(BadScenario::new(
                object.path("do"),
                "must be interrupt, respond, say, context, end or leave",
            ));
        }
    };
    Ok(Action { at, act })
}
