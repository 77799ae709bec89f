//! The record of a call: everything that was ever done, with its time. Nothing is forgotten and nothing is kept twice; what the
//! agent does now, how far it has sounded, what was heard are read off the record whenever they are asked for.

use serde_json::{Value, json};

use super::case::{Case, Us};
use super::ear::{Ear, Turn};
use super::heard;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Answer,
    Say,
    Greeting,
    Idle,
    Warning,
    Exit,
}

/// What an utterance is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Of {
    Step,
    Message,
    OnStart,
    /// Of the tool with this index.
    OnDelay(usize),
    OnResult,
}

#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) length: Us,
    pub(crate) words: Vec<(String, Us)>,
    pub(crate) fails: bool,
    /// When, and as which request of the call.
    pub(crate) asked: Option<(Us, u64)>,
    pub(crate) ready: Option<Us>,
    pub(crate) started: Option<Us>,
    /// Its place in the order of requests, from where its end is counted.
    pub(crate) running_since: u64,
    pub(crate) ended: Option<Us>,
    /// It will never sound (any more).
    pub(crate) dropped: bool,
}

#[derive(Debug)]
pub(crate) struct Utterance {
    pub(crate) of: Of,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) ttfb: Us,
    pub(crate) closed: bool,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) asked: (Us, u64),
    /// Index of the scripted answer.
    pub(crate) answer: Option<usize>,
    pub(crate) tools: bool,
    pub(crate) first: Option<Us>,
    /// It ended, failed or was cancelled.
    pub(crate) done: bool,
    pub(crate) failed: bool,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) kind: Kind,
    pub(crate) interruptible: bool,
    /// Its place in the order of the floor; `None` = it is only prepared.
    pub(crate) place: Option<i64>,
    pub(crate) gone: Option<Us>,
    pub(crate) steps: Vec<Step>,
    pub(crate) utterances: Vec<Utterance>,
    /// From, to, and whether playout was told.
    pub(crate) holds: Vec<(Us, Option<Us>, bool)>,
    pub(crate) interrupted: bool,
    /// Of a preparation: the text it answers, and how many items the history had.
    pub(crate) prepared: Option<(String, usize)>,
    /// Its voice is asked no sooner.
    pub(crate) not_before: Us,
    /// Tools of its last step were started, and the step after them is still to come.
    pub(crate) tools_due: bool,
}

#[derive(Debug)]
pub(crate) struct ToolRun {
    pub(crate) reply: usize,
    /// Index of the scripted tool.
    pub(crate) tool: Option<usize>,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) started: (Us, u64),
    pub(crate) result: Option<Us>,
    pub(crate) delay_judged: bool,
}

/// A turn that was committed.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) at: Us,
    pub(crate) spoken_until: Option<Us>,
    pub(crate) reply: Option<usize>,
}

pub(crate) struct Record<'a> {
    pub(crate) case: &'a Case,
    pub(crate) ear: Ear<'a>,
    pub(crate) now: Us,
    pub(crate) lines: Vec<(Us, Value)>,
    pub(crate) history: Vec<Value>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) tools: Vec<ToolRun>,
    pub(crate) turns: Vec<Committed>,
    /// How many news lay behind when the open turn began.
    pub(crate) turn_from: usize,
    /// Texts that min words kept back.
    pub(crate) kept: Vec<String>,
    /// Indices of the finals that were backchannels.
    pub(crate) back: Vec<usize>,
    /// Where speech ended whose words had not come in time.
    pub(crate) late: Option<Us>,
    /// How many preparations the open turn has had.
    pub(crate) preparations: usize,
    /// Stretches whose duck and whose hold were judged, and which stretch ducked which utterance of which reply.
    pub(crate) duck_judged: Vec<usize>,
    pub(crate) hold_judged: Vec<usize>,
    pub(crate) ducks: Vec<(usize, usize, Option<usize>)>,
    /// When the resume of the hold that began then was judged.
    pub(crate) resume_judged: Vec<(Us, Us)>,
    /// Ends of playout.
    pub(crate) ends: Vec<Us>,
    /// Call-outs, and how many turns were committed before each.
    pub(crate) idles: Vec<(Us, usize)>,
    pub(crate) idle_spoken: usize,
    pub(crate) warned: bool,
    pub(crate) warning_said: bool,
    pub(crate) ending: bool,
    pub(crate) over: bool,
    pub(crate) broken: bool,
    pub(crate) requests: u64,
    /// Failures and successes of LLM and TTS, in order.
    pub(crate) fates: Vec<(Us, Stage, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Llm,
    Tts,
}

impl<'a> Record<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        Self {
            case,
            ear: Ear::new(case),
            now: 0,
            lines: Vec::new(),
            history: Vec::new(),
            replies: Vec::new(),
            tools: Vec::new(),
            turns: Vec::new(),
            turn_from: 0,
            kept: Vec::new(),
            back: Vec::new(),
            late: None,
            preparations: 0,
            duck_judged: Vec::new(),
            hold_judged: Vec::new(),
            ducks: Vec::new(),
            resume_judged: Vec::new(),
            ends: Vec::new(),
            idles: Vec::new(),
            idle_spoken: 0,
            warned: false,
            warning_said: false,
            ending: false,
            over: false,
            broken: false,
            requests: 0,
            fates: Vec::new(),
        }
    }

    pub(crate) fn tell(&mut self, what: &str, fields: Value) {
        let mut line = json!({"what": what});
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        self.lines.push((self.now, line));
    }

    pub(crate) fn remember(&mut self, item: Value) {
        self.tell("history", item.clone());
        self.history.push(item);
    }

    pub(crate) fn request(&mut self) -> (Us, u64) {
        self.requests += 1;
        (self.now, self.requests)
    }

    /// Replies that have or await the floor, in order.
    pub(crate) fn floor(&self) -> Vec<usize> {
        let mut floor: Vec<usize> = (0..self.replies.len())
            .filter(|r| self.replies[*r].gone.is_none() && self.replies[*r].place.is_some())
            .collect();
        floor.sort_by_key(|r| self.replies[*r].place);
        floor
    }

    pub(crate) fn head(&self) -> Option<usize> {
        self.floor().first().copied()
    }

    /// The reply that is prepared for the open turn.
    pub(crate) fn preparation(&self) -> Option<usize> {
        self.replies.iter().position(|reply| reply.gone.is_none() && reply.place.is_none())
    }

    pub(crate) fn turn(&self) -> Turn<'a> {
        self.ear.turn(self.turn_from)
    }

    /// All of the open turn's text, what was kept back before it included.
    pub(crate) fn text(&self) -> String {
        let turn = self.turn();
        let kept = self.kept.iter().map(String::as_str);
        kept.chain(turn.finals.iter().copied()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn words_so_far(&self) -> usize {
        heard::count(&self.text()) + self.ear.interim_words(&self.turn())
    }

    /// Whether the open turn has a text of its own, if only an interim one.
    pub(crate) fn turn_is_open(&self) -> bool {
        let turn = self.turn();
        !turn.finals.is_empty() || !turn.interims.is_empty()
    }

    pub(crate) fn first_sample(&self) -> Option<Us> {
        let pieces = self.replies.iter().flat_map(|reply| &reply.utterances).flat_map(|u| &u.pieces);
        pieces.filter_map(|piece| piece.started).min()
    }

    /// End of the echo warm-up, while it lasts.
    pub(crate) fn warm_until(&self) -> Option<Us> {
        self.first_sample().map(|first| first + self.case.settings.warmup).filter(|end| self.now < *end)
    }

    pub(crate) fn tool_runs(&self, r: usize) -> bool {
        self.replies[r].tools_due && self.tools.iter().any(|tool| tool.reply == r && tool.result.is_none())
    }

    /// The state that was told last.
    pub(crate) fn told_state(&self) -> &str {
        let state = self.lines.iter().rev().find(|(_, line)| line["what"] == "agent.state");
        state.and_then(|(_, line)| line["state"].as_str()).unwrap_or("listening")
    }

    pub(crate) fn refresh_state(&mut self) {
        let floor = self.floor();
        let head = floor.first().map(|r| &self.replies[*r]);
        let state = if head.is_some_and(Reply::held) {
            "listening"
        } else if head.is_some_and(|head| head.sounding().is_some()) {
            "speaking"
        } else if floor.iter().any(|r| self.replies[*r].kind == Kind::Answer && !self.replies[*r].held()) {
            "thinking"
        } else {
            "listening"
        };
        if state != self.told_state() {
            self.tell("agent.state", json!({"state": state}));
        }
    }

    /// Position in the sounding piece of a reply.
    pub(crate) fn position(&self, r: usize) -> Option<Us> {
        let reply = &self.replies[r];
        let piece = reply.sounding_piece()?;
        let started = piece.started?;
        let held: Us = reply
            .holds
            .iter()
            .map(|(from, to, _)| (to.unwrap_or(self.now) - (*from).max(started)).max(0))
            .sum();
        Some((self.now - started - held).min(piece.length))
    }

    /// What was heard of the sounding utterance, and of its sounding piece.
    pub(crate) fn heard(&self, r: usize) -> (String, Option<String>) {
        let reply = &self.replies[r];
        let Some(u) = reply.sounding() else { return (String::new(), None) };
        let utterance = &reply.utterances[u];
        let whole = utterance.pieces.iter().filter(|piece| piece.ended.is_some());
        let mut texts: Vec<String> = whole.map(|piece| piece.text.clone()).collect();
        let part = self.position(r).zip(utterance.current()).map(|(position, p)| {
            let piece = &utterance.pieces[p];
            heard::heard(&piece.text, &piece.words, piece.length, position).to_owned()
        });
        texts.extend(part.clone().filter(|part| !part.is_empty()));
        (texts.join(" "), part)
    }
}

impl Reply {
    pub(crate) fn new(kind: Kind, interruptible: bool) -> Self {
        Self {
            kind,
            interruptible,
            place: None,
            gone: None,
            steps: Vec::new(),
            utterances: Vec::new(),
            holds: Vec::new(),
            interrupted: false,
            prepared: None,
            not_before: 0,
            tools_due: false,
        }
    }

    pub(crate) fn held(&self) -> bool {
        self.holds.last().is_some_and(|(_, to, _)| to.is_none())
    }

    /// Whether a first sample of it ever left.
    pub(crate) fn spoke(&self) -> bool {
        self.utterances.iter().flat_map(|u| &u.pieces).any(|piece| piece.started.is_some())
    }

    pub(crate) fn unheard_greeting(&self) -> bool {
        self.kind == Kind::Greeting && !self.spoke()
    }

    /// Whether the LLM is being asked.
    pub(crate) fn asking(&self) -> bool {
        self.steps.last().is_some_and(|step| !step.done)
    }

    /// The utterance that sounds or is the next to sound.
    pub(crate) fn front(&self) -> Option<usize> {
        self.utterances.iter().position(|utterance| !utterance.closed)
    }

    /// The piece of it that sounds, or is about to.
    pub(crate) fn sounding_piece(&self) -> Option<&Piece> {
        let utterance = &self.utterances[self.sounding()?];
        utterance.current().map(|p| &utterance.pieces[p])
    }

    /// Pieces whose sound was asked for and has not come.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (usize, usize, &Piece)> {
        let pieces = self.utterances.iter().enumerate().flat_map(|(u, utterance)| {
            utterance.pieces.iter().enumerate().map(move |(p, piece)| (u, p, piece))
        });
        pieces.filter(|(_, _, piece)| piece.asked.is_some() && piece.ready.is_none() && !piece.dropped)
    }

    /// The utterance whose first sample has left and whose last has not.
    pub(crate) fn sounding(&self) -> Option<usize> {
        self.front().filter(|u| self.utterances[*u].started())
    }
}

impl Utterance {
    pub(crate) fn started(&self) -> bool {
        self.pieces.iter().any(|piece| piece.started.is_some())
    }

    /// The piece that sounds or is the next to sound.
    pub(crate) fn current(&self) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.ended.is_none() && !piece.dropped)
    }

    /// Its text, as far as it will sound or has sounded.
    pub(crate) fn text(&self) -> String {
        let pieces = self.pieces.iter().filter(|piece| !piece.dropped);
        pieces.map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ")
    }
}
