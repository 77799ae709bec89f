//! A strict parser of scenario files.

use core::time::Duration;

use serde_json::{Map, Value};

use crate::contract::input::TurnHint;
use crate::contract::participation::{Participation, ParticipationMode};
use crate::contract::settings::{SettingError, Settings, SpokenMessage};
use crate::simulation::scenario_fields::{ObjectReader, ScenarioError, parse_time, read_message};
use crate::simulation::strict_json;

/// Maximum size of a scenario file in bytes.
pub const MAX_SCENARIO_BYTES: usize = 16 << 20;

type ParseResult<T> = Result<T, ScenarioError>;

/// A scripted conversation.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) settings: Settings,
    pub(crate) vad: (Duration, Duration),
    pub(crate) defaults: Defaults,
    pub(crate) user: Vec<ScriptedSpeech>,
    pub(crate) hints: Vec<(Duration, TurnHint)>,
    pub(crate) replies: Vec<ScriptedReply>,
    pub(crate) tools: Vec<(String, ScriptedTool)>,
    pub(crate) actions: Vec<ScriptedAction>,
    /// Several people, of whom the agent is one.
    pub(crate) meeting: Option<ScriptedMeeting>,
    pub(crate) until: Duration,
}

/// A conversation of several people.
#[derive(Debug)]
pub(crate) struct ScriptedMeeting {
    pub(crate) rules: Participation,
    /// How late speakers are reported; `None` = they are not.
    pub(crate) speaker_delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) stt_delay: Duration,
    pub(crate) llm_ttft: Duration,
    pub(crate) llm_duration: Duration,
    pub(crate) tts_ttfb: Duration,
}

/// One speech segment of the scripted user.
#[derive(Debug)]
pub(crate) struct ScriptedSpeech {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) text: Option<String>,
    /// The person of a meeting.
    pub(crate) speaker: Option<String>,
    pub(crate) stt_delay: Duration,
    pub(crate) end_of_turn: Option<f64>,
}

/// A reply of the scripted LLM.
#[derive(Debug, Default)]
pub(crate) struct ScriptedReply {
    pub(crate) in_reply_to: String,
    pub(crate) segments: Vec<ScriptedSegment>,
    pub(crate) tool_calls: Vec<(String, Value)>,
    pub(crate) llm_ttft: Duration,
    pub(crate) llm_duration: Duration,
    pub(crate) tts_ttfb: Duration,
    pub(crate) llm_fails: bool,
    pub(crate) is_guardrail: bool,
    /// Whether the model decides not to speak.
    pub(crate) stays_silent: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedSegment {
    pub(crate) text: String,
    pub(crate) audio_duration: Duration,
    pub(crate) word_times: Vec<(String, Duration)>,
    pub(crate) tts_fails: bool,
}

#[derive(Debug)]
pub(crate) struct ScriptedTool {
    pub(crate) duration: Duration,
    pub(crate) result: Result<Value, String>,
    pub(crate) on_start: Option<SpokenMessage>,
    pub(crate) on_delay: Option<SpokenMessage>,
    pub(crate) on_success: Option<SpokenMessage>,
    pub(crate) on_error: Option<SpokenMessage>,
    pub(crate) delay: Duration,
    pub(crate) ends_call: bool,
}

#[derive(Debug)]
pub(crate) struct ScriptedAction {
    pub(crate) at: Duration,
    pub(crate) kind: ActionKind,
}

#[derive(Debug)]
pub(crate) enum ActionKind {
    Interrupt,
    Respond(String),
    Say {
        text: String,
        audio_duration: Duration,
        interrupt: bool,
        allow_interruptions: Option<bool>,
    },
    Context(String),
    End,
    Leave,
}

/// Parses a scenario.
pub(crate) fn parse_scenario(json: &[u8]) -> ParseResult<Scenario> {
    if json.len() > MAX_SCENARIO_BYTES {
        return Err(ScenarioError::new("file", "is larger than 16 MiB"));
    }
    let value = strict_json::parse_strict(json).map_err(|bad| match bad {
        strict_json::StrictJsonError::InvalidJson { path, error } => {
            let field = if path.is_empty() { "file".into() } else { path };
            ScenarioError::new(field, format!("is not valid JSON: {error}"))
        }
        strict_json::StrictJsonError::DuplicateKey { path, line } => {
            ScenarioError::new(path, format!("is duplicated in line {line}"))
        }
    })?;
    let file = ObjectReader::new("", &value)?;
    file.reject_unknown_keys(&[
        "name", "settings", "vad", "defaults", "meeting", "user", "hints", "replies", "tools",
        "actions", "until",
    ])?;
    file.text("name")?;
    let until = file.required_time("until")?;
    let settings = match file.object("settings")? {
        Some(settings) => read_settings(&settings)?,
        None => Settings::scenario_defaults(),
    };
    let mut vad = (Duration::from_millis(50), Duration::from_millis(500));
    if let Some(object) = file.object("vad")? {
        object.reject_unknown_keys(&["start", "silence"])?;
        vad = (object.time("start")?.unwrap_or(vad.0), object.time("silence")?.unwrap_or(vad.1));
    }
    let mut defaults = Defaults {
        stt_delay: Duration::from_millis(200),
        llm_ttft: Duration::from_millis(100),
        llm_duration: Duration::from_millis(300),
        tts_ttfb: Duration::from_millis(200),
    };
    if let Some(object) = file.object("defaults")? {
        object.reject_unknown_keys(&[
            "stt_delay",
            "llm_ttft",
            "llm_duration",
            "tts_ttfb",
            "tts_duration",
        ])?;
        object.time("tts_duration")?;
        defaults = Defaults {
            stt_delay: object.time("stt_delay")?.unwrap_or(defaults.stt_delay),
            llm_ttft: object.time("llm_ttft")?.unwrap_or(defaults.llm_ttft),
            llm_duration: object.time("llm_duration")?.unwrap_or(defaults.llm_duration),
            tts_ttfb: object.time("tts_ttfb")?.unwrap_or(defaults.tts_ttfb),
        };
    }
    let meeting = file.object("meeting")?.map(|object| read_meeting(&object)).transpose()?;
    let mut user = file
        .list("user")?
        .iter()
        .map(|item| read_user_speech(item, defaults))
        .collect::<ParseResult<Vec<_>>>()?;
    user.sort_by_key(|item| item.from);
    let hints = file.list("hints")?.iter().map(read_hint).collect::<ParseResult<_>>()?;
    let replies = file
        .list("replies")?
        .iter()
        .map(|item| read_reply(item, defaults))
        .collect::<ParseResult<_>>()?;
    let actions = file.list("actions")?.iter().map(read_action).collect::<ParseResult<_>>()?;
    let mut tools = Vec::new();
    if let Some(object) = file.object("tools")? {
        for name in object.map.keys() {
            let tool = object
                .object(name)?
                .ok_or_else(|| ScenarioError::new(object.path(name), "must be an object"))?;
            tools.push((name.clone(), read_tool(&tool)?));
        }
    }
    Ok(Scenario { settings, vad, defaults, user, hints, replies, tools, actions, meeting, until })
}

fn read_settings(object: &ObjectReader<'_>) -> ParseResult<Settings> {
    let mut settings = Settings::scenario_defaults();
    for (key, value) in object.map {
        let named = |bad: SettingError| ScenarioError::new(object.path(&bad.field), bad.reason);
        if settings.set(key, value).map_err(named)? {
            continue;
        }
        match key.as_str() {
            "greeting" => settings.greeting = object.message(key, true)?,
            "recording_message" => settings.recording_message = object.message(key, true)?,
            "warning_message" => settings.warning_message = object.message(key, false)?,
            "exit_message" => settings.exit_message = object.message(key, false)?,
            "error_message" => settings.error_message = object.message(key, false)?,
            "idle_messages" => {
                settings.idle_messages = object
                    .list(key)?
                    .iter()
                    .map(|item| read_message(item, false))
                    .collect::<ParseResult<_>>()?;
            }
            _ => return Err(ScenarioError::new(object.path(key), "is unknown")),
        }
    }
    settings.to_spec().map_err(|bad| ScenarioError::new(object.path(&bad.field), bad.reason))?;
    Ok(settings)
}

fn read_user_speech(object: &ObjectReader<'_>, defaults: Defaults) -> ParseResult<ScriptedSpeech> {
    object.reject_unknown_keys(&["from", "to", "text", "speaker", "stt_delay", "end_of_turn"])?;
    let (from, to) = (object.required_time("from")?, object.required_time("to")?);
    if to < from {
        return Err(ScenarioError::new(object.path("to"), "must not be before from"));
    }
    let end_of_turn = object.number("end_of_turn")?;
    if end_of_turn.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return Err(ScenarioError::new(object.path("end_of_turn"), "must be between 0 and 1"));
    }
    let stt_delay = object.time("stt_delay")?.unwrap_or(defaults.stt_delay);
    let (text, speaker) = (object.text("text")?, object.text("speaker")?);
    Ok(ScriptedSpeech { from, to, text, speaker, stt_delay, end_of_turn })
}

fn read_meeting(object: &ObjectReader<'_>) -> ParseResult<ScriptedMeeting> {
    let mut rules = Participation::default();
    let mut speaker_delay = Some(Duration::from_millis(250));
    for (key, value) in object.map {
        let named = |bad: SettingError| {
            let field = bad.field.trim_start_matches("meeting.");
            ScenarioError::new(object.path(field), bad.reason)
        };
        if rules.set(key, value).map_err(named)? {
            continue;
        }
        match key.as_str() {
            "mode" => {
                let modes = ["one_to_one", "participant", "observer"];
                rules.mode = ParticipationMode::from_name(object.one_of(key, &modes)?);
            }
            "names" => {
                let names = value.as_array().into_iter().flatten().map(Value::as_str);
                let names: Option<Vec<&str>> = names.collect();
                let names = names.filter(|_| value.is_array()).ok_or_else(|| {
                    ScenarioError::new(object.path(key), "must be a list of strings")
                })?;
                rules.names = names.into_iter().map(Into::into).collect();
            }
            "wake_phrase" => rules.wake_phrase = object.text(key)?,
            "speaker_delay" if value.is_null() => speaker_delay = None,
            "speaker_delay" => speaker_delay = object.time(key)?,
            _ => return Err(ScenarioError::new(object.path(key), "is unknown")),
        }
    }
    rules.validate().map_err(|bad| {
        let field = bad.field.trim_start_matches("meeting.");
        ScenarioError::new(object.path(field), bad.reason)
    })?;
    Ok(ScriptedMeeting { rules, speaker_delay })
}

/// An opinion of the STT's provider about the user's turn.
fn read_hint(object: &ObjectReader<'_>) -> ParseResult<(Duration, TurnHint)> {
    object.reject_unknown_keys(&["at", "hint"])?;
    let hint = match object.one_of("hint", &["eager_end", "resumed", "end"])? {
        Some("eager_end") => TurnHint::EagerEnd,
        Some("resumed") => TurnHint::Resumed,
        Some(_) => TurnHint::End,
        None => return Err(object.missing_error("hint")),
    };
    Ok((object.required_time("at")?, hint))
}

fn read_reply(object: &ObjectReader<'_>, defaults: Defaults) -> ParseResult<ScriptedReply> {
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
        "stay_silent",
    ];
    object.reject_unknown_keys(&keys)?;
    object.time("tts_duration")?;
    let mut parts = Vec::new();
    let audio = object.time("audio")?.unwrap_or_default();
    let say = object.text("say")?;
    let words = read_word_times(object, say.as_deref())?;
    if let Some(say) = say {
        parts.push(ScriptedSegment {
            text: say,
            audio_duration: audio,
            word_times: words,
            tts_fails: false,
        });
    }
    for part in object.list("parts")? {
        part.reject_unknown_keys(&["say", "audio", "words", "fail"])?;
        let say = part.text("say")?.unwrap_or_default();
        let words = read_word_times(&part, Some(&say))?;
        let fails = part.one_of("fail", &["tts"])?.is_some();
        parts.push(ScriptedSegment {
            text: say,
            audio_duration: part.time("audio")?.unwrap_or_default(),
            word_times: words,
            tts_fails: fails,
        });
    }
    parts.retain(|part| !part.text.trim().is_empty());
    let fail = object.one_of("fail", &["llm", "tts"])?;
    if let Some(first) = parts.first_mut().filter(|_| fail == Some("tts")) {
        first.tts_fails = true;
    }
    let calls = object.list("calls")?;
    let calls = calls.iter().map(|call| {
        call.reject_unknown_keys(&["tool", "arguments"])?;
        let arguments = call
            .object("arguments")?
            .map_or_else(|| Value::Object(Map::new()), |o| Value::Object(o.map.clone()));
        Ok((call.required_text("tool")?, arguments))
    });
    Ok(ScriptedReply {
        in_reply_to: object.required_text("to")?,
        segments: parts,
        tool_calls: calls.collect::<ParseResult<_>>()?,
        llm_ttft: object.time("llm_ttft")?.unwrap_or(defaults.llm_ttft),
        llm_duration: object.time("llm_duration")?.unwrap_or(defaults.llm_duration),
        tts_ttfb: object.time("tts_ttfb")?.unwrap_or(defaults.tts_ttfb),
        llm_fails: fail == Some("llm"),
        is_guardrail: object.flag("guardrail")?.unwrap_or(false),
        stays_silent: object.flag("stay_silent")?.unwrap_or(false),
    })
}

fn read_word_times(
    object: &ObjectReader<'_>,
    say: Option<&str>,
) -> ParseResult<Vec<(String, Duration)>> {
    let path = object.path("words");
    let Some(list) = object.map.get("words") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or_else(|| ScenarioError::new(&path, "must be a list"))?;
    let mut words: Vec<(String, Duration)> = Vec::new();
    for (index, word) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let pair = word.as_array().map(Vec::as_slice);
        let Some([Value::String(text), end]) = pair else {
            return Err(ScenarioError::new(path, "must be [text, end]"));
        };
        let end = parse_time(&path, end)?;
        if words.last().is_some_and(|(_, before)| end < *before) {
            return Err(ScenarioError::new(path, "must not end before the previous word"));
        }
        words.push((text.clone(), end));
    }
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let spelled: String = words.iter().map(|(text, _)| bare(text)).collect();
    if !list.is_empty() && spelled != bare(say.unwrap_or_default()) {
        return Err(ScenarioError::new(path, "must match the spoken text"));
    }
    Ok(words)
}

fn read_tool(object: &ObjectReader<'_>) -> ParseResult<ScriptedTool> {
    object.reject_unknown_keys(&[
        "takes",
        "returns",
        "fail",
        "on_start",
        "on_delay",
        "on_success",
        "on_error",
        "delay",
        "ends_call",
    ])?;
    let result = match (object.text("fail")?, object.map.get("returns")) {
        (Some(reason), _) => Err(reason),
        (None, Some(value)) => Ok(value.clone()),
        (None, None) => return Err(ScenarioError::new(object.path("returns"), "is missing")),
    };
    let message = |key| {
        object
            .contains_key(key)
            .then(|| object.message(key, false))
            .transpose()
            .map(Option::flatten)
    };
    Ok(ScriptedTool {
        duration: object.required_time("takes")?,
        result,
        on_start: message("on_start")?,
        on_delay: message("on_delay")?,
        on_success: message("on_success")?,
        on_error: message("on_error")?,
        delay: object.time("delay")?.unwrap_or(Duration::from_secs(5)),
        ends_call: object.flag("ends_call")?.unwrap_or(false),
    })
}

fn read_action(object: &ObjectReader<'_>) -> ParseResult<ScriptedAction> {
    let at = object.required_time("at")?;
    let what = object.required_text("do")?;
    let act = match what.as_str() {
        "say" => {
            object.reject_unknown_keys(&[
                "at",
                "do",
                "text",
                "audio",
                "interrupt",
                "allow_interruptions",
            ])?;
            ActionKind::Say {
                text: object.required_text("text")?,
                audio_duration: object.required_time("audio")?,
                interrupt: object.flag("interrupt")?.unwrap_or(true),
                allow_interruptions: object.flag("allow_interruptions")?,
            }
        }
        "respond" | "context" => {
            object.reject_unknown_keys(&["at", "do", "text"])?;
            let text = object.required_text("text")?;
            if what == "respond" { ActionKind::Respond(text) } else { ActionKind::Context(text) }
        }
        "interrupt" | "end" | "leave" => {
            object.reject_unknown_keys(&["at", "do"])?;
            match what.as_str() {
                "interrupt" => ActionKind::Interrupt,
                "end" => ActionKind::End,
                _ => ActionKind::Leave,
            }
        }
        _ => {
            return Err(ScenarioError::new(
                object.path("do"),
                "must be interrupt, respond, say, context, end or leave",
            ));
        }
    };
    Ok(ScriptedAction { at, kind: act })
}
