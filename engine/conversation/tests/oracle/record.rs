//! The record of a call: everything that was done, with its time. Nothing is removed and nothing is
//! stored twice. The state of the agent, its position and the heard text are derived from the
//! record on each request.

use serde_json::{Value, json};

use super::case::{Case, Micros};
use super::heard_text;
use super::user_input::{Turn, UserInput};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReplyKind {
    Answer,
    Say,
    Greeting,
    RecordingMessage,
    Idle,
    Warning,
    Exit,
}

/// The kind of an utterance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UtteranceKind {
    Generation,
    Message,
    OnStart,
    /// The message of the tool with this index.
    OnDelay(usize),
    OnResult,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) text: String,
    pub(crate) length: Micros,
    pub(crate) word_times: Vec<(String, Micros)>,
    pub(crate) tts_fails: bool,
    /// Time and number of the request in the call.
    pub(crate) requested: Option<(Micros, u64)>,
    pub(crate) ready_at: Option<Micros>,
    pub(crate) started_at: Option<Micros>,
    /// Its place in the order of requests, which orders its end among events of the same time.
    pub(crate) running_since: u64,
    pub(crate) ended_at: Option<Micros>,
    /// It will not be played (any further).
    pub(crate) discarded: bool,
}

#[derive(Debug)]
pub(crate) struct Utterance {
    pub(crate) kind: UtteranceKind,
    pub(crate) segments: Vec<Segment>,
    pub(crate) ttfb: Micros,
    pub(crate) closed: bool,
}

#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) requested: (Micros, u64),
    /// Index of the scripted answer.
    pub(crate) script_index: Option<usize>,
    pub(crate) tools_allowed: bool,
    pub(crate) first_token_at: Option<Micros>,
    /// It has ended, failed or was cancelled.
    pub(crate) done: bool,
    pub(crate) failed: bool,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) kind: ReplyKind,
    pub(crate) interruptible: bool,
    /// Its place in the order of the floor; `None` = a preemptive reply.
    pub(crate) floor_position: Option<i64>,
    pub(crate) ended_at: Option<Micros>,
    pub(crate) generations: Vec<Generation>,
    pub(crate) utterances: Vec<Utterance>,
    /// Start, end, and whether `playout.held` was emitted.
    pub(crate) holds: Vec<(Micros, Option<Micros>, bool)>,
    pub(crate) interruption_emitted: bool,
    /// For a preemptive reply: the text that it answers, and the number of items in the history.
    pub(crate) preemptive_basis: Option<(String, usize)>,
    /// The earliest time of its TTS request.
    pub(crate) not_before: Micros,
    /// Tools of its last generation were started, and the next generation is pending.
    pub(crate) awaiting_tools: bool,
    /// The call ends after it, unless a turn is committed before.
    pub(crate) ends_call: bool,
}

#[derive(Debug)]
pub(crate) struct RunningTool {
    pub(crate) reply: usize,
    /// Index of the scripted tool.
    pub(crate) script_index: Option<usize>,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) started: (Micros, u64),
    pub(crate) result_at: Option<Micros>,
    pub(crate) delay_judged: bool,
}

/// A committed turn.
#[derive(Debug)]
pub(crate) struct CommittedTurn {
    pub(crate) committed_at: Micros,
    pub(crate) speech_end: Option<Micros>,
    pub(crate) reply: Option<usize>,
}

pub(crate) struct CallRecord<'a> {
    pub(crate) case: &'a Case,
    pub(crate) user_input: UserInput<'a>,
    pub(crate) now: Micros,
    pub(crate) lines: Vec<(Micros, Value)>,
    pub(crate) history: Vec<Value>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) tools: Vec<RunningTool>,
    pub(crate) turns: Vec<CommittedTurn>,
    /// Number of user events that had passed when the open turn began.
    pub(crate) turn_start: usize,
    /// Texts that had too few words and are carried over to the next turn.
    pub(crate) carried_texts: Vec<String>,
    /// User items whose finals were backchannels.
    pub(crate) backchannel_finals: Vec<usize>,
    /// End of speech whose transcript did not arrive in time.
    pub(crate) late_speech_end: Option<Micros>,
    /// Number of preemptive replies of the open turn.
    pub(crate) preemptive_attempts: usize,
    /// Speech segments whose duck and whose hold were evaluated; and which segment ducked which
    /// utterance of which reply.
    pub(crate) duck_judged: Vec<usize>,
    pub(crate) hold_judged: Vec<usize>,
    pub(crate) ducks: Vec<(usize, usize, Option<usize>)>,
    /// Holds whose resume was evaluated: start of the hold, and the last reported end of speech.
    pub(crate) resume_judged: Vec<(Micros, Micros)>,
    /// Times when playout ended.
    pub(crate) playout_ends: Vec<Micros>,
    /// Call-outs, each with the number of turns committed before it.
    pub(crate) callouts: Vec<(Micros, usize)>,
    pub(crate) idle_messages_spoken: usize,
    pub(crate) warning_emitted: bool,
    pub(crate) warning_said: bool,
    /// A reply that ends the call was spoken.
    pub(crate) farewell_spoken: bool,
    pub(crate) ending: bool,
    pub(crate) over: bool,
    pub(crate) failure_limit_reached: bool,
    pub(crate) request_count: u64,
    /// Failures (false) and successes (true) of LLM and TTS, in order.
    pub(crate) stage_outcomes: Vec<(Micros, Stage, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Llm,
    Tts,
}

impl<'a> CallRecord<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        Self {
            case,
            user_input: UserInput::new(case),
            now: 0,
            lines: Vec::new(),
            history: Vec::new(),
            replies: Vec::new(),
            tools: Vec::new(),
            turns: Vec::new(),
            turn_start: 0,
            carried_texts: Vec::new(),
            backchannel_finals: Vec::new(),
            late_speech_end: None,
            preemptive_attempts: 0,
            duck_judged: Vec::new(),
            hold_judged: Vec::new(),
            ducks: Vec::new(),
            resume_judged: Vec::new(),
            playout_ends: Vec::new(),
            callouts: Vec::new(),
            idle_messages_spoken: 0,
            warning_emitted: false,
            warning_said: false,
            farewell_spoken: false,
            ending: false,
            over: false,
            failure_limit_reached: false,
            request_count: 0,
            stage_outcomes: Vec::new(),
        }
    }

    pub(crate) fn emit(&mut self, what: &str, fields: Value) {
        let mut line = json!({"what": what});
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        self.lines.push((self.now, line));
    }

    pub(crate) fn append_history(&mut self, item: Value) {
        self.emit("history", item.clone());
        self.history.push(item);
    }

    pub(crate) fn next_request(&mut self) -> (Micros, u64) {
        self.request_count += 1;
        (self.now, self.request_count)
    }

    /// The replies that hold or await the floor, in order.
    pub(crate) fn floor(&self) -> Vec<usize> {
        let mut floor: Vec<usize> = (0..self.replies.len())
            .filter(|r| {
                self.replies[*r].ended_at.is_none() && self.replies[*r].floor_position.is_some()
            })
            .collect();
        floor.sort_by_key(|r| self.replies[*r].floor_position);
        floor
    }

    pub(crate) fn head(&self) -> Option<usize> {
        self.floor().first().copied()
    }

    /// The preemptive reply to the open turn.
    pub(crate) fn preemptive_reply(&self) -> Option<usize> {
        self.replies
            .iter()
            .position(|reply| reply.ended_at.is_none() && reply.floor_position.is_none())
    }

    pub(crate) fn open_turn(&self) -> Turn<'a> {
        self.user_input.turn_since(self.turn_start)
    }

    /// The whole text of the open turn, including carried-over text.
    pub(crate) fn open_turn_text(&self) -> String {
        let turn = self.open_turn();
        let carried = self.carried_texts.iter().map(String::as_str);
        carried.chain(turn.finals.iter().copied()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn turn_word_count(&self) -> usize {
        heard_text::count_words(&self.open_turn_text())
            + self.user_input.interim_word_count(&self.open_turn())
    }

    /// Whether the open turn has text of its own, interim or final.
    pub(crate) fn turn_is_open(&self) -> bool {
        let turn = self.open_turn();
        !turn.finals.is_empty() || !turn.interims.is_empty()
    }

    pub(crate) fn first_sample(&self) -> Option<Micros> {
        let segments =
            self.replies.iter().flat_map(|reply| &reply.utterances).flat_map(|u| &u.segments);
        segments.filter_map(|segment| segment.started_at).min()
    }

    /// End of the echo warm-up, while it lasts.
    pub(crate) fn echo_warmup_end(&self) -> Option<Micros> {
        self.first_sample()
            .map(|first| first + self.case.settings.echo_warmup)
            .filter(|end| self.now < *end)
    }

    pub(crate) fn has_running_tool(&self, r: usize) -> bool {
        self.replies[r].awaiting_tools
            && self.tools.iter().any(|tool| tool.reply == r && tool.result_at.is_none())
    }

    /// The last emitted state.
    pub(crate) fn emitted_state(&self) -> &str {
        let state = self.lines.iter().rev().find(|(_, line)| line["what"] == "agent.state");
        state.and_then(|(_, line)| line["state"].as_str()).unwrap_or("listening")
    }

    pub(crate) fn update_agent_state(&mut self) {
        let floor = self.floor();
        let head = floor.first().map(|r| &self.replies[*r]);
        let state = if head.is_some_and(Reply::is_held) {
            "listening"
        } else if head.is_some_and(|head| head.sounding_utterance().is_some()) {
            "speaking"
        } else if floor
            .iter()
            .any(|r| self.replies[*r].kind == ReplyKind::Answer && !self.replies[*r].is_held())
        {
            "thinking"
        } else {
            "listening"
        };
        if state != self.emitted_state() {
            self.emit("agent.state", json!({"state": state}));
        }
    }

    /// Position in the playing segment of a reply.
    pub(crate) fn position(&self, r: usize) -> Option<Micros> {
        let reply = &self.replies[r];
        let segment = reply.sounding_segment()?;
        let started = segment.started_at?;
        let held: Micros = reply
            .holds
            .iter()
            .map(|(from, to, _)| (to.unwrap_or(self.now) - (*from).max(started)).max(0))
            .sum();
        Some((self.now - started - held).min(segment.length))
    }

    /// The heard text of the playing utterance and of its playing segment.
    pub(crate) fn heard_text(&self, r: usize) -> (String, Option<String>) {
        let reply = &self.replies[r];
        let Some(u) = reply.sounding_utterance() else { return (String::new(), None) };
        let utterance = &reply.utterances[u];
        let whole = utterance.segments.iter().filter(|segment| segment.ended_at.is_some());
        let mut texts: Vec<String> = whole.map(|segment| segment.text.clone()).collect();
        let part = self.position(r).zip(utterance.current_segment()).map(|(position, p)| {
            let segment = &utterance.segments[p];
            heard_text::heard_prefix(&segment.text, &segment.word_times, segment.length, position)
                .to_owned()
        });
        texts.extend(part.clone().filter(|part| !part.is_empty()));
        (texts.join(" "), part)
    }
}

impl Reply {
    pub(crate) fn new(kind: ReplyKind, interruptible: bool) -> Self {
        Self {
            kind,
            interruptible,
            floor_position: None,
            ended_at: None,
            generations: Vec::new(),
            utterances: Vec::new(),
            holds: Vec::new(),
            interruption_emitted: false,
            preemptive_basis: None,
            not_before: 0,
            awaiting_tools: false,
            ends_call: false,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.last().is_some_and(|(_, to, _)| to.is_none())
    }

    /// Whether a sample of it was ever played.
    pub(crate) fn has_spoken(&self) -> bool {
        self.utterances.iter().flat_map(|u| &u.segments).any(|segment| segment.started_at.is_some())
    }

    /// Whether all of its utterances are over.
    pub(crate) fn has_nothing_left(&self) -> bool {
        self.utterances.iter().all(|utterance| utterance.closed)
    }

    pub(crate) fn is_unheard_opening(&self) -> bool {
        matches!(self.kind, ReplyKind::Greeting | ReplyKind::RecordingMessage) && !self.has_spoken()
    }

    /// Whether a request to the LLM is in progress.
    pub(crate) fn is_generating(&self) -> bool {
        self.generations.last().is_some_and(|step| !step.done)
    }

    /// The utterance that is playing or plays next.
    pub(crate) fn front_utterance(&self) -> Option<usize> {
        self.utterances.iter().position(|utterance| !utterance.closed)
    }

    /// The segment that is playing or plays next, in the playing utterance.
    pub(crate) fn sounding_segment(&self) -> Option<&Segment> {
        let utterance = &self.utterances[self.sounding_utterance()?];
        utterance.current_segment().map(|p| &utterance.segments[p])
    }

    /// Segments that were sent to the TTS and have no audio yet.
    pub(crate) fn awaited_segments(&self) -> impl Iterator<Item = (usize, usize, &Segment)> {
        let segments = self.utterances.iter().enumerate().flat_map(|(u, utterance)| {
            utterance.segments.iter().enumerate().map(move |(p, segment)| (u, p, segment))
        });
        segments.filter(|(_, _, segment)| {
            segment.requested.is_some() && segment.ready_at.is_none() && !segment.discarded
        })
    }

    /// The utterance whose first sample was played and whose last was not.
    pub(crate) fn sounding_utterance(&self) -> Option<usize> {
        self.front_utterance().filter(|u| self.utterances[*u].has_started())
    }
}

impl Utterance {
    pub(crate) fn has_started(&self) -> bool {
        self.segments.iter().any(|segment| segment.started_at.is_some())
    }

    /// The segment that is playing or plays next.
    pub(crate) fn current_segment(&self) -> Option<usize> {
        self.segments.iter().position(|segment| segment.ended_at.is_none() && !segment.discarded)
    }

    /// Its text without discarded segments.
    pub(crate) fn text(&self) -> String {
        let segments = self.segments.iter().filter(|segment| !segment.discarded);
        segments.map(|segment| segment.text.as_str()).collect::<Vec<_>>().join(" ")
    }
}
