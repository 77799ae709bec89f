//! A reply: anything the agent does that is spoken and cut as a whole. Plain data and what can be read off it.

use std::collections::VecDeque;

use serde_json::Value;
use smallvec::SmallVec;

use crate::event::{TurnTimes, UtteranceId};
use crate::heard_text;
use crate::input::{Epoch, GenerationId, SegmentId, ToolCallId};
use crate::output::{SpeechSource, ToolMessage};
use crate::time::{Position, Time};

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
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
    pub(crate) kind: ReplyKind,
    /// Whether the user may stop it.
    pub(crate) interruptible: bool,
    /// Whether `agent.interrupted` was told of it.
    pub(crate) interruption_emitted: bool,
    /// Whether the user's voice pauses it.
    pub(crate) held: bool,
    /// Whether `playout.held` was told of this hold.
    pub(crate) hold_emitted: bool,
    /// When this hold silenced it, and the onset of the voice that did.
    pub(crate) silenced_by: Option<(Time, Time)>,
    /// The turn it answers.
    pub(crate) turn: Option<u32>,
    /// True end of the speech that it answers.
    pub(crate) user_speech_end: Option<Time>,
    /// Times of that turn, until they are told.
    pub(crate) turn_times: Option<TurnTimes>,
    /// The LLM's current step.
    pub(crate) generation: Option<Generation>,
    /// Characters that the LLM has given.
    pub(crate) generated_chars: usize,
    /// Number of the next step.
    pub(crate) next_generation_index: u32,
    /// Rounds of tools so far.
    pub(crate) tool_rounds: u32,
    /// Tools of the last step were started; the next step follows when they and the words are done.
    pub(crate) awaiting_tools: bool,
    /// What is to be spoken; the first one sounds or is the next to sound.
    pub(crate) utterances: VecDeque<Utterance>,
    /// Whether a word of it was spoken.
    pub(crate) has_spoken: bool,
    /// Whether anything was given to the TTS.
    pub(crate) tts_requested: bool,
    /// Its TTS is asked no sooner.
    pub(crate) not_before: Time,
    /// Of a preparation: the text it answers and the history it knows.
    pub(crate) preemptive_basis: Option<(String, u64)>,
}

/// A question to the LLM and what has come of it.
pub(crate) struct Generation {
    pub(crate) id: GenerationId,
    pub(crate) requested_at: Time,
    pub(crate) first_token_at: Option<Time>,
    pub(crate) last_token_at: Time,
    pub(crate) tools_allowed: bool,
    pub(crate) is_fallback: bool,
    pub(crate) is_guardrail: bool,
    pub(crate) ended: bool,
    /// Whether something of it was given to the TTS.
    pub(crate) sent_to_tts: bool,
    pub(crate) segment_count: u32,
    pub(crate) tool_calls: Vec<ToolCallRequest>,
}

/// A tool that the LLM wants.
pub(crate) struct ToolCallRequest {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

/// A tool that runs.
pub(crate) struct RunningTool {
    pub(crate) call: ToolCallId,
    pub(crate) generation: GenerationId,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) started_at: Time,
    pub(crate) delay_message_at: Option<Time>,
    /// Its reply is gone: the result enters history and nothing follows.
    pub(crate) orphaned: bool,
}

/// Where an utterance's words come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UtteranceOrigin {
    /// A step of the LLM.
    Generation(GenerationId),
    /// A fixed text.
    Message(SpeechSource),
}

/// One step's words, one say, one message.
pub(crate) struct Utterance {
    pub(crate) origin: UtteranceOrigin,
    /// The step whose words it is, or to whose tool it belongs.
    pub(crate) generation: Option<GenerationId>,
    /// Known once it sounds.
    pub(crate) id: UtteranceId,
    pub(crate) text: String,
    /// Bytes of the text that are in pieces.
    pub(crate) segmented_bytes: usize,
    /// Bytes of the text whose pieces were played whole.
    pub(crate) played_bytes: usize,
    /// What is still to be played; the first one sounds or is the next to sound.
    pub(crate) segments: VecDeque<Segment>,
    /// No more text will come.
    pub(crate) complete: bool,
    /// When its first sample left.
    pub(crate) started_at: Option<Time>,
    /// Most that was ever heard, in bytes.
    pub(crate) heard_bytes: usize,
    /// As much of it as was told.
    pub(crate) reported_heard_bytes: usize,
    pub(crate) in_context: bool,
    /// Whether it was explained what it waits for.
    pub(crate) explained_wait: Option<WaitReason>,
}

/// What an utterance may have to wait for, apart from those that make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The distance from the words before it, or the greeting's wait.
    Spacing,
    /// The end of the user's speech.
    UserSpeech,
}

/// Words given to the TTS at once.
pub(crate) struct Segment {
    /// Known once it was asked for.
    pub(crate) id: Option<SegmentId>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) index: u32,
    pub(crate) is_fallback: bool,
    pub(crate) requested_at: Option<Time>,
    pub(crate) ready_at: Option<Time>,
    /// Whether it may sound.
    pub(crate) play_allowed: bool,
    pub(crate) has_started: bool,
    /// Whether samples leave.
    pub(crate) playing: bool,
    pub(crate) base_position: Position,
    pub(crate) base_time: Time,
    pub(crate) duration: Option<Position>,
    pub(crate) word_times: SmallVec<[(String, Position); 0]>,
}

impl Reply {
    pub(crate) fn new(epoch: Epoch, kind: ReplyKind, interruptible: bool) -> Self {
        Self {
            epoch,
            kind,
            interruptible,
            interruption_emitted: false,
            held: false,
            hold_emitted: false,
            silenced_by: None,
            turn: None,
            user_speech_end: None,
            turn_times: None,
            generation: None,
            generated_chars: 0,
            next_generation_index: 0,
            tool_rounds: 0,
            awaiting_tools: false,
            utterances: VecDeque::new(),
            has_spoken: false,
            tts_requested: false,
            not_before: Time::ZERO,
            preemptive_basis: None,
        }
    }

    /// The utterance whose first sample has left and whose last has not.
    pub(crate) fn sounding_utterance(&self) -> Option<&Utterance> {
        self.utterances.front().filter(|utterance| utterance.started_at.is_some())
    }

    /// Whether the LLM is being asked.
    pub(crate) fn is_generating(&self) -> bool {
        self.generation.as_ref().is_some_and(|generation| !generation.ended)
    }

    /// Whether it is an answer, and so counts as thinking while it does not sound.
    pub(crate) fn counts_as_thinking(&self) -> bool {
        matches!(self.kind, ReplyKind::Turn | ReplyKind::Guardrail)
    }

    /// A greeting of which nothing was heard: it goes without a word.
    pub(crate) fn is_unheard_greeting(&self) -> bool {
        self.kind == ReplyKind::Greeting && !self.has_spoken
    }
}

impl Utterance {
    pub(crate) fn new(origin: UtteranceOrigin, text: String, complete: bool) -> Self {
        let generation =
            if let UtteranceOrigin::Generation(generation) = &origin { Some(*generation) } else { None };
        Self {
            origin: origin,
            generation: generation,
            id: UtteranceId(0),
            text,
            segmented_bytes: 0,
            played_bytes: 0,
            segments: VecDeque::new(),
            complete,
            started_at: None,
            heard_bytes: 0,
            reported_heard_bytes: 0,
            in_context: true,
            explained_wait: None,
        }
    }

    /// Makes `len` more bytes of the text a piece, its blanks apart; false if there is nothing to say in them.
    pub(crate) fn push_segment(&mut self, len: usize, index: u32) -> bool {
        let raw = &self.text[self.segmented_bytes..self.segmented_bytes + len];
        let start = self.segmented_bytes + (raw.len() - raw.trim_start().len());
        let end = start + raw.trim().len();
        self.segmented_bytes += len;
        if start >= end {
            return false;
        }
        self.segments.push_back(Segment {
            id: None,
            start,
            end,
            index: index,
            is_fallback: false,
            requested_at: None,
            ready_at: None,
            play_allowed: false,
            has_started: false,
            playing: false,
            base_position: Position::ZERO,
            base_time: Time::ZERO,
            duration: None,
            word_times: SmallVec::new(),
        });
        true
    }

    /// What of it was heard by `now`: a prefix of its text that never shrinks.
    pub(crate) fn update_heard_text(&mut self, now: Time) -> &str {
        let segment = self.segments.front().filter(|segment| segment.has_started);
        let heard = match segment.map(|segment| (segment.start, segment.heard_bytes(&self.text, now))) {
            Some((start, len)) if len > 0 => start + len,
            _ => self.played_bytes,
        };
        self.heard_bytes = self.heard_bytes.max(heard);
        &self.text[..self.heard_bytes]
    }

    /// Whether one of its next `ahead` pieces was not given to the TTS.
    pub(crate) fn needs_tts(&self, max_ahead: usize) -> bool {
        self.segments.iter().take(max_ahead).any(|segment| segment.requested_at.is_none())
    }

    pub(crate) fn is_tool_result_message(&self) -> bool {
        let UtteranceOrigin::Message(SpeechSource::Tool { message, .. }) = &self.origin else { return false };
        matches!(message, ToolMessage::OnSuccess | ToolMessage::OnError)
    }
}

impl Segment {
    /// How far it has sounded.
    pub(crate) fn position(&self, now: Time) -> Position {
        if !self.has_started {
            return Position::ZERO;
        }
        let position = if self.playing {
            let gone = now.since(self.base_time).as_micros() as u64;
            Position::from_samples(
                self.base_position.as_samples().saturating_add(gone.saturating_mul(48) / 1000),
            )
        } else {
            self.base_position
        };
        self.duration.map_or(position, |duration| position.min(duration))
    }

    /// Stops counting here.
    pub(crate) fn freeze_position(&mut self, now: Time) {
        self.base_position = self.position(now);
        self.base_time = now;
        self.playing = false;
    }

    /// Bytes of its words that were heard.
    pub(crate) fn heard_bytes(&self, text: &str, now: Time) -> usize {
        heard_text::heard_prefix_len(
            &text[self.start..self.end],
            &self.word_times,
            self.duration,
            self.position(now),
        )
    }
}
