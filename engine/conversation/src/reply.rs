//! A reply: anything the agent does that is spoken and cut as a whole. Plain data and what can be read off it.

use std::collections::VecDeque;

use serde_json::Value;
use smallvec::SmallVec;

use crate::event::{TurnTimes, UtteranceId};
use crate::heard;
use crate::input::{Epoch, PieceId, StepId, ToolCallId};
use crate::output::{Source, ToolMessage};
use crate::time::{Position, Time};

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The answer to a turn: steps of the LLM.
    Turn,
    /// A guardrail's words in place of an answer.
    Guardrail,
    /// A command's words.
    Say,
    /// The greeting.
    Greeting,
    /// An idle message.
    Idle,
    /// The warning message.
    Warning,
    /// The exit message.
    Exit,
}

/// A reply, on the floor or in preparation.
pub(crate) struct Reply {
    pub(crate) epoch: Epoch,
    pub(crate) kind: Kind,
    /// Whether the user may stop it.
    pub(crate) interruptible: bool,
    /// Whether `agent.interrupted` was told of it.
    pub(crate) interrupted: bool,
    /// Whether the user's voice pauses it.
    pub(crate) held: bool,
    /// Whether `playout.held` was told of this hold.
    pub(crate) hold_told: bool,
    /// When this hold silenced it, and the onset of the voice that did.
    pub(crate) silenced: Option<(Time, Time)>,
    /// The turn it answers.
    pub(crate) turn: Option<u32>,
    /// True end of the speech that it answers.
    pub(crate) spoke_until: Option<Time>,
    /// Times of that turn, until they are told.
    pub(crate) times: Option<TurnTimes>,
    /// The LLM's current step.
    pub(crate) step: Option<Step>,
    /// Characters that the LLM has given.
    pub(crate) given: usize,
    /// Number of the next step.
    pub(crate) next_step: u32,
    /// Rounds of tools so far.
    pub(crate) rounds: u32,
    /// Tools of the last step were started; the next step follows when they and the words are done.
    pub(crate) tools_due: bool,
    /// What is to be spoken; the first one sounds or is the next to sound.
    pub(crate) utterances: VecDeque<Utterance>,
    /// Whether a word of it was spoken.
    pub(crate) spoke: bool,
    /// Whether anything was given to the TTS.
    pub(crate) voiced: bool,
    /// Its TTS is asked no sooner.
    pub(crate) not_before: Time,
    /// Of a preparation: the text it answers and the history it knows.
    pub(crate) prepared: Option<(String, u64)>,
}

/// A question to the LLM and what has come of it.
pub(crate) struct Step {
    pub(crate) id: StepId,
    pub(crate) asked: Time,
    pub(crate) first: Option<Time>,
    pub(crate) last: Time,
    pub(crate) tools: bool,
    pub(crate) fallback: bool,
    pub(crate) guardrail: bool,
    pub(crate) ended: bool,
    /// Whether something of it was given to the TTS.
    pub(crate) given: bool,
    pub(crate) parts: u32,
    pub(crate) calls: Vec<ToolAsk>,
}

/// A tool that the LLM wants.
pub(crate) struct ToolAsk {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

/// A tool that runs.
pub(crate) struct Running {
    pub(crate) call: ToolCallId,
    pub(crate) step: StepId,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) started: Time,
    pub(crate) delay_at: Option<Time>,
    /// Its reply is gone: the result enters history and nothing follows.
    pub(crate) orphan: bool,
}

/// Where an utterance's words come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A step of the LLM.
    Words(StepId),
    /// A fixed text.
    Message(Source),
}

/// One step's words, one say, one message.
pub(crate) struct Utterance {
    pub(crate) from: From,
    /// The step whose words it is, or to whose tool it belongs.
    pub(crate) step: Option<StepId>,
    /// Known once it sounds.
    pub(crate) id: UtteranceId,
    pub(crate) text: String,
    /// Bytes of the text that are in pieces.
    pub(crate) cut: usize,
    /// Bytes of the text whose pieces were played whole.
    pub(crate) played: usize,
    /// What is still to be played; the first one sounds or is the next to sound.
    pub(crate) pieces: VecDeque<Piece>,
    /// No more text will come.
    pub(crate) complete: bool,
    /// When its first sample left.
    pub(crate) started: Option<Time>,
    /// Most that was ever heard, in bytes.
    pub(crate) heard: usize,
    /// As much of it as was told.
    pub(crate) told_heard: usize,
    pub(crate) in_context: bool,
    /// Whether it was explained what it waits for.
    pub(crate) waits: Option<Waits>,
}

/// What an utterance may have to wait for, apart from those that make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The distance from the words before it, or the greeting's wait.
    Time,
    /// The end of the user's speech.
    User,
}

/// Words given to the TTS at once.
pub(crate) struct Piece {
    /// Known once it was asked for.
    pub(crate) id: Option<PieceId>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) part: u32,
    pub(crate) fallback: bool,
    pub(crate) asked: Option<Time>,
    pub(crate) ready: Option<Time>,
    /// Whether it may sound.
    pub(crate) permitted: bool,
    pub(crate) started: bool,
    /// Whether samples leave.
    pub(crate) running: bool,
    pub(crate) base: Position,
    pub(crate) base_at: Time,
    pub(crate) duration: Option<Position>,
    pub(crate) times: SmallVec<[(String, Position); 0]>,
}

impl Reply {
    pub(crate) fn new(epoch: Epoch, kind: Kind, interruptible: bool) -> Self {
        Self {
            epoch,
            kind,
            interruptible,
            interrupted: false,
            held: false,
            hold_told: false,
            silenced: None,
            turn: None,
            spoke_until: None,
            times: None,
            step: None,
            given: 0,
            next_step: 0,
            rounds: 0,
            tools_due: false,
            utterances: VecDeque::new(),
            spoke: false,
            voiced: false,
            not_before: Time::ZERO,
            prepared: None,
        }
    }

    /// The utterance whose first sample has left and whose last has not.
    pub(crate) fn sounding(&self) -> Option<&Utterance> {
        self.utterances.front().filter(|utterance| utterance.started.is_some())
    }

    /// Whether the LLM is being asked.
    pub(crate) fn asking(&self) -> bool {
        self.step.as_ref().is_some_and(|step| !step.ended)
    }

    /// Whether it is an answer, and so counts as thinking while it does not sound.
    pub(crate) fn thinks(&self) -> bool {
        matches!(self.kind, Kind::Turn | Kind::Guardrail)
    }

    /// A greeting of which nothing was heard: it goes without a word.
    pub(crate) fn is_unheard_greeting(&self) -> bool {
        self.kind == Kind::Greeting && !self.spoke
    }
}

impl Utterance {
    pub(crate) fn new(from: From, text: String, complete: bool) -> Self {
        let step = if let From::Words(step) = &from { Some(*step) } else { None };
        Self {
            from,
            step,
            id: UtteranceId(0),
            text,
            cut: 0,
            played: 0,
            pieces: VecDeque::new(),
            complete,
            started: None,
            heard: 0,
            told_heard: 0,
            in_context: true,
            waits: None,
        }
    }

    /// Makes `len` more bytes of the text a piece, its blanks apart; false if there is nothing to say in them.
    pub(crate) fn cut_piece(&mut self, len: usize, part: u32) -> bool {
        let raw = &self.text[self.cut..self.cut + len];
        let start = self.cut + (raw.len() - raw.trim_start().len());
        let end = start + raw.trim().len();
        self.cut += len;
        if start >= end {
            return false;
        }
        self.pieces.push_back(Piece {
            id: None,
            start,
            end,
            part,
            fallback: false,
            asked: None,
            ready: None,
            permitted: false,
            started: false,
            running: false,
            base: Position::ZERO,
            base_at: Time::ZERO,
            duration: None,
            times: SmallVec::new(),
        });
        true
    }

    /// What of it was heard by `now`: a prefix of its text that never shrinks.
    pub(crate) fn listen(&mut self, now: Time) -> &str {
        let piece = self.pieces.front().filter(|piece| piece.started);
        let heard = match piece.map(|piece| (piece.start, piece.heard(&self.text, now))) {
            Some((start, len)) if len > 0 => start + len,
            _ => self.played,
        };
        self.heard = self.heard.max(heard);
        &self.text[..self.heard]
    }

    /// Whether one of its next `ahead` pieces was not given to the TTS.
    pub(crate) fn wants_voice(&self, ahead: usize) -> bool {
        self.pieces.iter().take(ahead).any(|piece| piece.asked.is_none())
    }

    pub(crate) fn is_after_result(&self) -> bool {
        let From::Message(Source::Tool { message, .. }) = &self.from else { return false };
        matches!(message, ToolMessage::OnSuccess | ToolMessage::OnError)
    }
}

impl Piece {
    /// How far it has sounded.
    pub(crate) fn position(&self, now: Time) -> Position {
        if !self.started {
            return Position::ZERO;
        }
        let position = if self.running {
            let gone = now.since(self.base_at).as_micros() as u64;
            Position::from_samples(self.base.samples().saturating_add(gone.saturating_mul(48) / 1000))
        } else {
            self.base
        };
        self.duration.map_or(position, |duration| position.min(duration))
    }

    /// Stops counting here.
    pub(crate) fn freeze(&mut self, now: Time) {
        self.base = self.position(now);
        self.base_at = now;
        self.running = false;
    }

    /// Bytes of its words that were heard.
    pub(crate) fn heard(&self, text: &str, now: Time) -> usize {
        heard::prefix(&text[self.start..self.end], &self.times, self.duration, self.position(now))
    }
}
