//! The smallest call that still shows a difference: things are left out and times made round as long as it does.

use super::case::{Case, Do, S, Said, Us};

/// More rounds seldom help.
const ROUNDS: usize = 5;

/// A way to make a call simpler.
type Simpler = Box<dyn Fn(&mut Case)>;

/// Leaves out and rounds what `differs` does not need.
pub(crate) fn shrink(mut case: Case, differs: impl Fn(&Case) -> bool) -> Case {
    for _ in 0..ROUNDS {
        let mut simpler_found = false;
        for simpler in ways(&case) {
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
        && case.settings.min_delay <= case.settings.max_delay
        && case.vad.0 < case.vad.1
}

fn ways(case: &Case) -> Vec<Simpler> {
    let mut ways: Vec<Simpler> = Vec::new();
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
    for n in (0..case.answers.len()).rev() {
        ways.push(Box::new(move |case| {
            if n < case.answers.len() {
                case.answers.remove(n);
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
    ways.extend(plain_settings());
    for n in 0..case.answers.len() {
        for part in (0..case.answers[n].parts.len()).rev() {
            ways.push(Box::new(move |case| {
                if case.answers.get(n).is_some_and(|answer| part < answer.parts.len()) {
                    case.answers[n].parts.remove(part);
                }
            }));
        }
        ways.push(Box::new(move |case| {
            if let Some(answer) = case.answers.get_mut(n) {
                answer.calls.clear();
            }
        }));
        ways.push(Box::new(move |case| {
            if let Some(answer) = case.answers.get_mut(n) {
                answer.guardrail = false;
            }
        }));
        ways.push(Box::new(move |case| {
            if let Some(part) = case.answers.get_mut(n).and_then(|answer| answer.parts.first_mut()) {
                part.words.clear();
                part.say = "One two three four five.".into();
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
                item.over = None;
            }
        }));
    }
    for n in 0..case.tools.len() {
        for which in 0..4 {
            ways.push(Box::new(move |case| {
                if let Some(tool) = case.tools.get_mut(n) {
                    let messages =
                        [&mut tool.on_start, &mut tool.on_delay, &mut tool.on_success, &mut tool.on_error];
                    *messages.into_iter().nth(which).expect("one of four") = None;
                }
            }));
        }
    }
    for unit in [S, S / 2, S / 10, S / 20, S / 100, S / 1000] {
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

fn plain_settings() -> Vec<Simpler> {
    vec![
        Box::new(|case| case.settings.min_delay = S / 2),
        Box::new(|case| case.settings.max_delay = 6 * S),
        Box::new(|case| case.settings.min_duration = S / 2),
        Box::new(|case| case.settings.min_words = 0),
        Box::new(|case| case.settings.false_timeout = Some(2 * S)),
        Box::new(|case| case.settings.allow = true),
        Box::new(|case| case.settings.backchannels = false),
        Box::new(|case| case.settings.preemptive = false),
        Box::new(|case| case.settings.preemptive_tts = false),
        Box::new(|case| case.settings.warmup = 0),
        Box::new(|case| case.settings.idle = None),
        Box::new(|case| case.settings.tool_steps = 3),
        Box::new(|case| case.settings.spacing = 0),
        Box::new(|case| case.settings.transcript_timeout = None),
        Box::new(|case| case.settings.threshold = 50),
        Box::new(|case| case.settings.limit = None),
        Box::new(|case| case.settings.idle_end = None),
        Box::new(|case| case.settings.greeting = None),
        Box::new(|case| case.settings.idle_messages.clear()),
        Box::new(|case| case.settings.warning = None),
        Box::new(|case| case.settings.exit = None),
        Box::new(|case| case.settings.error = None),
        Box::new(|case| case.settings.warning_before = 10 * S),
        Box::new(|case| case.vad = (S / 20, S / 2)),
        Box::new(|case| case.defaults = (S / 10, S * 3 / 10, S / 5)),
    ]
}

/// Every time of a call that may be made round.
fn times(case: &mut Case) -> Vec<&mut Us> {
    let mut times: Vec<&mut Us> = Vec::new();
    for Said { from, to, stt, .. } in &mut case.user {
        times.extend([from, to, stt]);
    }
    for answer in &mut case.answers {
        times.extend([&mut answer.ttft, &mut answer.llm, &mut answer.ttfb]);
        times.extend(answer.parts.iter_mut().map(|part| &mut part.audio));
    }
    for action in &mut case.actions {
        times.push(&mut action.at);
        if let Do::Say { audio, .. } = &mut action.what {
            times.push(audio);
        }
    }
    for tool in &mut case.tools {
        times.extend([&mut tool.takes, &mut tool.delay]);
        let messages = [&mut tool.on_start, &mut tool.on_delay, &mut tool.on_success, &mut tool.on_error];
        times.extend(messages.into_iter().flatten().map(|message| &mut message.audio));
    }
    let settings = &mut case.settings;
    times.extend([
        &mut settings.min_delay,
        &mut settings.max_delay,
        &mut settings.min_duration,
        &mut settings.warmup,
        &mut settings.spacing,
        &mut settings.warning_before,
    ]);
    let optional = [
        &mut settings.false_timeout,
        &mut settings.idle,
        &mut settings.transcript_timeout,
        &mut settings.limit,
    ];
    times.extend(optional.into_iter().flatten());
    let messages = [&mut settings.greeting, &mut settings.warning, &mut settings.exit, &mut settings.error];
    for message in messages.into_iter().flatten().chain(&mut settings.idle_messages) {
        times.extend([&mut message.audio, &mut message.wait]);
    }
    times.push(&mut case.until);
    times
}
