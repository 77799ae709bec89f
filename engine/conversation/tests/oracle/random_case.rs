//! Random calls, plausible and hostile: late transcripts, a flickering VAD, overlapping commands,
//! failing stages, tools that outlive their reply.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::case::{
    ActionKind, Case, Hint, Message, Micros, ScriptedAction, ScriptedReply, ScriptedSegment,
    ScriptedSpeech, ScriptedTool, Settings,
};

/// The source of choices: the bytes first, then SplitMix64, which is small and the same on every
/// machine.
pub(crate) struct Random {
    bytes: VecDeque<u8>,
    state: u64,
    /// Times are multiples of this, in µs. A fine grid makes equal times rare, a coarse one
    /// frequent.
    grid: Micros,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { bytes: VecDeque::new(), state: seed, grid: 200 }
    }

    /// Takes choices from `bytes`, one or two bytes for each.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.iter().copied().collect(), ..Self::new(bytes.len() as u64) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        let n = n.max(1);
        let Some(first) = self.bytes.pop_front() else { return (self.next() % n as u64) as usize };
        let second = if n > 256 { self.bytes.pop_front().unwrap_or(0) } else { 0 };
        (usize::from(first) | usize::from(second) << 8) * n.div_ceil(1 << 16) % n
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// A time between two bounds in milliseconds.
    fn time(&mut self, low: Micros, high: Micros) -> Micros {
        let (low, high) = (low * 1000, high * 1000);
        let steps = (high - low) / self.grid + 1;
        (low + self.below(steps as usize) as Micros * self.grid) / self.grid * self.grid
    }

    fn maybe<T>(&mut self, percent: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(percent).then(|| make(self))
    }
}

const WORDS: [&str; 12] = [
    "tell", "me", "about", "the", "price", "of", "Stop!", "no,", "please", "story", "wait",
    "weather?",
];
const BACKCHANNELS: [&str; 13] = [
    "yeah",
    "Yes.",
    "mm-hm",
    "mhm",
    "Uh-huh",
    "okay",
    "OK.",
    "right",
    "yes",
    "Yep.",
    "I see.",
    "yeah, yeah",
    "mm-hm okay",
];
const PHRASES: [&str; 10] = [
    "Here is a long story for you ... the end.",
    "Yes.",
    "It is twelve dollars and 50 cents, one percent less.",
    "I am afraid I do not know that!",
    "Sure, one moment please.",
    "从前有一只小狗住在海边。",
    "Élan vital, naïve café.",
    "- Well - let me see,",
    "Take the little apple to the table.",
    "Strength through eye-opening aeiou queue.",
];

fn random_words(r: &mut Random) -> String {
    if r.chance(22) {
        return r.pick(&BACKCHANNELS).to_owned();
    }
    let n = 1 + r.below(4);
    (0..n).map(|_| r.pick(&WORDS)).collect::<Vec<_>>().join(" ")
}

fn random_message(r: &mut Random, say: &str) -> Message {
    Message { text: say.to_owned(), audio_duration: r.time(200, 2500), delay: 0 }
}

fn random_settings(r: &mut Random) -> Settings {
    let min_delay = r.time(100, 1200);
    Settings {
        min_endpointing_delay: min_delay,
        max_endpointing_delay: min_delay + r.time(0, 3000),
        min_interruption_duration: r.time(0, 800),
        min_interruption_words: r.pick(&[0, 0, 0, 0, 1, 2, 3]),
        false_interruption_timeout: r.maybe(85, |r| r.time(300, 2500)),
        allow_interruptions: r.chance(88),
        backchannels: r.chance(50),
        preemptive_generation: r.chance(70),
        preemptive_tts: r.chance(30),
        echo_warmup: if r.chance(25) { r.time(0, 4000) } else { 0 },
        idle_timeout: r.maybe(40, |r| r.time(800, 6000)),
        max_tool_steps: r.pick(&[0, 1, 2, 3, 3]),
        min_consecutive_speech_delay: if r.chance(25) { r.time(0, 1000) } else { 0 },
        transcript_timeout: r.maybe(50, |r| r.time(100, 2000)),
        turn_threshold: r.below(101) as i64,
        max_call_duration: r.maybe(30, |r| r.time(2000, 25_000)),
        call_warning_before: r.time(0, 12_000),
        idle_end_after: r.maybe(50, |r| r.below(4)),
        greeting: r.maybe(35, |r| Message {
            delay: r.time(0, 1500),
            ..random_message(r, "Hello, I am Ann.")
        }),
        recording_message: r.maybe(25, |r| Message {
            delay: r.time(0, 1500),
            ..random_message(r, "This call is recorded.")
        }),
        idle_messages: if r.chance(60) {
            let list = ["Still there?", "Hello?"];
            let n = 1 + r.below(2);
            list[..n].iter().map(|say| random_message(r, say)).collect()
        } else {
            Vec::new()
        },
        warning_message: r.maybe(60, |r| random_message(r, "Ten seconds left.")),
        exit_message: r.maybe(60, |r| random_message(r, "Our time is over, goodbye.")),
        error_message: r.maybe(60, |r| random_message(r, "Sorry, something went wrong.")),
    }
}

fn random_user(r: &mut Random, until: Micros, with_model: bool) -> Vec<ScriptedSpeech> {
    let mut items: Vec<ScriptedSpeech> = Vec::new();
    let mut at = r.time(0, 2500);
    while at < until && items.len() < 14 {
        let length = match r.below(10) {
            0 => r.time(0, 60),
            1..=3 => r.time(50, 500),
            4..=8 => r.time(300, 2000),
            _ => r.time(2000, 4000),
        };
        let text = r.maybe(72, random_words);
        let stt = match r.below(10) {
            0 => r.time(700, 4000),
            1 => 0,
            _ => r.time(50, 700),
        };
        let over = if with_model { r.maybe(80, |r| r.below(101) as i64) } else { None };
        items.push(ScriptedSpeech {
            from: at,
            to: at + length,
            text,
            stt_delay: stt / (2 * r.grid) * (2 * r.grid),
            end_of_turn: over,
        });
        let pause = match r.below(10) {
            0..=2 => r.time(0, 700),
            3..=5 => r.time(300, 1500),
            _ => r.time(800, 6000),
        };
        at += if r.chance(4) { r.time(0, 200) } else { length + pause };
    }
    items
}

fn random_segment(r: &mut Random) -> ScriptedSegment {
    let say = r.pick(&PHRASES).to_owned();
    let audio = if r.chance(15) { r.time(4000, 12_000) } else { r.time(100, 3500) };
    let mut times = Vec::new();
    if r.chance(20) {
        let tokens: Vec<&str> = say.split_whitespace().collect();
        let each = audio / tokens.len() as Micros / r.grid * r.grid;
        times = tokens
            .iter()
            .enumerate()
            .map(|(n, word)| ((*word).to_owned(), each * (n as Micros + 1)))
            .collect();
    }
    ScriptedSegment { text: say, audio_duration: audio, word_times: times, tts_fails: r.chance(5) }
}

fn random_latency(r: &mut Random, low: Micros, high: Micros) -> Micros {
    if r.chance(3) { r.time(5100, 7000) } else { r.time(low, high) }
}

fn random_reply(r: &mut Random, to: String) -> ScriptedReply {
    let parts = match r.below(10) {
        0 => 0,
        1..=6 => 1,
        7 | 8 => 2,
        _ => 3,
    };
    let calls = if r.chance(30) { 1 + r.below(2) } else { 0 };
    ScriptedReply {
        in_reply_to: to,
        segments: (0..parts).map(|_| random_segment(r)).collect(),
        tool_calls: (0..calls).map(|_| random_tool_call(r)).collect(),
        llm_ttft: random_latency(r, 50, 400),
        llm_duration: if r.chance(20) { r.time(1000, 4000) } else { r.time(50, 800) },
        tts_ttfb: random_latency(r, 50, 400),
        llm_fails: r.chance(6),
        is_guardrail: r.chance(7),
    }
}

fn random_tool(r: &mut Random, name: &str, chatty: usize) -> ScriptedTool {
    let say = |r: &mut Random, words: &str| r.maybe(chatty, |r| random_message(r, words));
    ScriptedTool {
        name: name.to_owned(),
        duration: match r.below(10) {
            0 => r.time(19_000, 23_000),
            1..=4 => r.time(50, 1000),
            _ => r.time(500, 7000),
        },
        returns: if r.chance(80) { Ok("Sunny".into()) } else { Err("out of order".into()) },
        on_start: say(r, "Starting."),
        on_delay: say(r, "It takes a while."),
        on_success: say(r, "There it is."),
        on_error: say(r, "That failed."),
        delay: r.time(200, 4000),
        ends_call: false,
    }
}

fn random_tool_call(r: &mut Random) -> (String, Value) {
    if r.chance(12) {
        let farewell = r.maybe(60, |_| "Goodbye.");
        return ("bye".into(), farewell.map_or(json!({}), |words| json!({"farewell": words})));
    }
    (r.pick(&["a", "b", "b", "nobody"]).to_owned(), json!({}))
}

fn random_action(r: &mut Random, until: Micros) -> ScriptedAction {
    let at = r.time(0, until / 1000);
    let what = match r.below(24) {
        0..=4 => ActionKind::Interrupt,
        5..=9 => ActionKind::Respond(random_words(r)),
        10..=18 => ActionKind::Say {
            text: r.pick(&["Dinner is ready.", "Listen to this, please."]).to_owned(),
            audio_duration: r.time(200, 3000),
            interrupt: r.chance(50),
            allow_interruptions: r.chance(65),
        },
        19..=21 => ActionKind::Context("The user is in a hurry.".into()),
        22 => ActionKind::End,
        _ => ActionKind::Leave,
    };
    ScriptedAction { at, kind: what }
}

/// The call that this source chooses.
pub(crate) fn random_case(mut random: Random) -> Case {
    let r = &mut random;
    // A coarse grid makes equal times frequent.
    r.grid = if r.chance(20) { 50_000 } else { 200 };
    let until = r.time(4000, 30_000);
    let with_model = r.chance(35);
    let user = random_user(r, until, with_model);
    let mut answers = Vec::new();
    let texts: Vec<String> = user.iter().filter_map(|item| item.text.clone()).collect();
    for text in texts {
        if r.chance(50) {
            let to = if r.chance(50) { text.to_uppercase() } else { text };
            answers.push(random_reply(r, to));
        }
    }
    for name in ["tool:a", "tool:b", "tool:nobody"] {
        if r.chance(70) {
            answers.push(random_reply(r, name.to_owned()));
        }
    }
    if r.chance(75) {
        answers.push(random_reply(r, "*".to_owned()));
    }
    let actions = r.pick(&[0, 0, 1, 1, 2, 3, 5]);
    let mut actions: Vec<ScriptedAction> = (0..actions).map(|_| random_action(r, until)).collect();
    actions.sort_by_key(|action| action.at);
    let start = r.time(50, 100);
    let mut case = Case {
        settings: random_settings(r),
        vad: (start, start + r.time(50, 600)),
        defaults: (r.time(50, 300), r.time(100, 800), random_latency(r, 50, 400)),
        user,
        hints: Vec::new(),
        replies: answers,
        tools: vec![
            random_tool(r, "a", 30),
            random_tool(r, "b", 60),
            ScriptedTool { ends_call: true, ..random_tool(r, "bye", 60) },
        ],
        actions,
        until,
    };
    // Last, so that the other choices do not depend on it.
    if r.chance(30) {
        let hints = 1 + r.below(5);
        let hint = |r: &mut Random| (r.time(0, until / 1000), r.pick(&Hint::ALL).0);
        case.hints = (0..hints).map(|_| hint(r)).collect();
        case.hints.sort_by_key(|(at, _)| *at);
    }
    case
}
