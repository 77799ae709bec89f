//! Finds the smallest call that still shows a difference: removes items and rounds times as long as
//! it does.

use super::case::{ActionKind, Case, Micros, SECOND, ScriptedSpeech};

/// More rounds rarely help.
const MAX_ROUNDS: usize = 5;

/// A change that makes a call simpler.
type Simplification = Box<dyn Fn(&mut Case)>;

/// Removes and rounds everything that `differs` does not need.
pub(crate) fn shrink(mut case: Case, differs: impl Fn(&Case) -> bool) -> Case {
    for _ in 0..MAX_ROUNDS {
        let mut simpler_found = false;
        for simpler in simplifications(&case) {
            let mut tried = case.clone();
            simpler(&mut tried);
            if format!("{tried:?}") != format!("{case:?}") && valid(&tried) && differs(&tried) {
                case = tried;
                simpler_found = true;
            }
        }
        if !simpler_found {
            break;
        }
    }
    case
}

fn valid(case: &Case) -> bool {
    case.user.is_sorted_by_key(|item| item.from)
        && case.user.iter().all(|item| item.from <= item.to)
        && case.settings.min_endpointing_delay <= case.settings.max_endpointing_delay
        && case.vad.0 < case.vad.1
}

fn simplifications(case: &Case) -> Vec<Simplification> {
    let mut ways: Vec<Simplification> = Vec::new();
    for n in (0..case.user.len()).rev() {
        ways.push(Box::new(move |case| {
            if n < case.user.len() {
                case.user.remove(n);
            }
        }));
    }
    for n in (0..case.actions.len()).rev() {
        ways.push(Box::new(move |case| {
            if n < case.actions.len() {
                case.actions.remove(n);
            }
        }));
    }
    for n in (0..case.replies.len()).rev() {
        ways.push(Box::new(move |case| {
            if n < case.replies.len() {
                case.replies.remove(n);
            }
        }));
    }
    for n in (0..case.tools.len()).rev() {
        ways.push(Box::new(move |case| {
            if n < case.tools.len() {
                case.tools.remove(n);
            }
        }));
    }
    ways.extend(default_settings());
    for n in 0..case.replies.len() {
        for part in (0..case.replies[n].segments.len()).rev() {
            ways.push(Box::new(move |case| {
                if case.replies.get(n).is_some_and(|answer| part < answer.segments.len()) {
                    case.replies[n].segments.remove(part);
                }
            }));
        }
        ways.push(Box::new(move |case| {
            if let Some(answer) = case.replies.get_mut(n) {
                answer.tool_calls.clear();
            }
        }));
        ways.push(Box::new(move |case| {
            if let Some(answer) = case.replies.get_mut(n) {
                answer.is_guardrail = false;
            }
        }));
        ways.push(Box::new(move |case| {
            if let Some(part) =
                case.replies.get_mut(n).and_then(|answer| answer.segments.first_mut())
            {
                part.word_times.clear();
                part.text = "One two three four five.".into();
            }
        }));
    }
    for n in 0..case.hints.len() {
        ways.push(Box::new(move |case| {
            if n < case.hints.len() {
                case.hints.remove(n);
            }
        }));
    }
    for n in 0..case.user.len() {
        ways.push(Box::new(move |case| {
            if let Some(item) = case.user.get_mut(n) {
                item.text = None;
            }
        }));
        ways.push(Box::new(move |case| {
            if let Some(item) = case.user.get_mut(n) {
                item.end_of_turn = None;
            }
        }));
    }
    for n in 0..case.tools.len() {
        for which in 0..4 {
            ways.push(Box::new(move |case| {
                if let Some(tool) = case.tools.get_mut(n) {
                    let messages = [
                        &mut tool.on_start,
                        &mut tool.on_delay,
                        &mut tool.on_success,
                        &mut tool.on_error,
                    ];
                    *messages.into_iter().nth(which).expect("one of four") = None;
                }
            }));
        }
    }
    for unit in [SECOND, SECOND / 2, SECOND / 10, SECOND / 20, SECOND / 100, SECOND / 1000] {
        for n in 0..times(&mut case.clone()).len() {
            ways.push(Box::new(move |case| {
                if let Some(time) = times(case).get_mut(n) {
                    **time = (**time + unit / 2) / unit * unit;
                }
            }));
        }
    }
    ways
}

fn default_settings() -> Vec<Simplification> {
    vec![
        Box::new(|case| case.settings.min_endpointing_delay = SECOND / 2),
        Box::new(|case| case.settings.max_endpointing_delay = 6 * SECOND),
        Box::new(|case| case.settings.min_interruption_duration = SECOND / 2),
        Box::new(|case| case.settings.min_interruption_words = 0),
        Box::new(|case| case.settings.false_interruption_timeout = Some(2 * SECOND)),
        Box::new(|case| case.settings.allow_interruptions = true),
        Box::new(|case| case.settings.backchannels = false),
        Box::new(|case| case.settings.preemptive_generation = false),
        Box::new(|case| case.settings.preemptive_tts = false),
        Box::new(|case| case.settings.echo_warmup = 0),
        Box::new(|case| case.settings.idle_timeout = None),
        Box::new(|case| case.settings.max_tool_steps = 3),
        Box::new(|case| case.settings.min_consecutive_speech_delay = 0),
        Box::new(|case| case.settings.transcript_timeout = None),
        Box::new(|case| case.settings.turn_threshold = 50),
        Box::new(|case| case.settings.max_call_duration = None),
        Box::new(|case| case.settings.idle_end_after = None),
        Box::new(|case| case.settings.greeting = None),
        Box::new(|case| case.settings.recording_message = None),
        Box::new(|case| case.settings.idle_messages.clear()),
        Box::new(|case| case.settings.warning_message = None),
        Box::new(|case| case.settings.exit_message = None),
        Box::new(|case| case.settings.error_message = None),
        Box::new(|case| case.settings.call_warning_before = 10 * SECOND),
        Box::new(|case| case.vad = (SECOND / 20, SECOND / 2)),
        Box::new(|case| case.defaults = (SECOND / 10, SECOND * 3 / 10, SECOND / 5)),
    ]
}

/// All times of a call that can be rounded.
fn times(case: &mut Case) -> Vec<&mut Micros> {
    let mut times: Vec<&mut Micros> = Vec::new();
    for ScriptedSpeech { from, to, stt_delay: stt, .. } in &mut case.user {
        times.extend([from, to, stt]);
    }
    for answer in &mut case.replies {
        times.extend([&mut answer.llm_ttft, &mut answer.llm_duration, &mut answer.tts_ttfb]);
        times.extend(answer.segments.iter_mut().map(|part| &mut part.audio_duration));
    }
    for action in &mut case.actions {
        times.push(&mut action.at);
        if let ActionKind::Say { audio_duration: audio, .. } = &mut action.kind {
            times.push(audio);
        }
    }
    for tool in &mut case.tools {
        times.extend([&mut tool.duration, &mut tool.delay]);
        let messages =
            [&mut tool.on_start, &mut tool.on_delay, &mut tool.on_success, &mut tool.on_error];
        times.extend(messages.into_iter().flatten().map(|message| &mut message.audio_duration));
    }
    let settings = &mut case.settings;
    times.extend([
        &mut settings.min_endpointing_delay,
        &mut settings.max_endpointing_delay,
        &mut settings.min_interruption_duration,
        &mut settings.echo_warmup,
        &mut settings.min_consecutive_speech_delay,
        &mut settings.call_warning_before,
    ]);
    let optional = [
        &mut settings.false_interruption_timeout,
        &mut settings.idle_timeout,
        &mut settings.transcript_timeout,
        &mut settings.max_call_duration,
    ];
    times.extend(optional.into_iter().flatten());
    let messages = [
        &mut settings.greeting,
        &mut settings.recording_message,
        &mut settings.warning_message,
        &mut settings.exit_message,
        &mut settings.error_message,
    ];
    for message in messages.into_iter().flatten().chain(&mut settings.idle_messages) {
        times.extend([&mut message.audio_duration, &mut message.delay]);
    }
    times.push(&mut case.until);
    times
}
