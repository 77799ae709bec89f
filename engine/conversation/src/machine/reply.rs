//! Replies: a reply is a unit of agent output that is spoken and interrupted as a whole. This
//! module holds plain data and queries on it.

use std::collections::VecDeque;

use serde_json::Value;
use smallvec::SmallVec;

use crate::contract::direction::{DirectionFilter, DirectionTag, Expression};
use crate::contract::event::{TurnTimes, UtteranceId};
use crate::contract::input::{Epoch, GenerationId, SegmentId, ToolCallId};
use crate::contract::output::{SpeechSource, ToolMessage};
use crate::contract::providers::{TurnProviders, add_provider};
use crate::contract::spec::Phrasing;
use crate::contract::time::{Position, Time};
use crate::machine::heard_text;
use crate::words::is_ideograph;

/// Kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The answer to a turn: generations of the LLM.
    Turn,
    /// A guardrail's response in place of an answer.
    Guardrail,
    /// The text of a say command.
    Say,
    /// The greeting.
    Greeting,
    /// The message that the call is recorded.
    RecordingMessage,
    /// An idle message.
    Idle,
    /// The warning message.
    Warning,
    /// The exit message.
    Exit,
}

/// A reply, on the floor or preemptive.
pub(crate) struct Reply {
    pub(crate) epoch: Epoch,
    pub(crate) kind: ReplyKind,
    /// Whether the user may interrupt it.
    pub(crate) interruptible: bool,
    /// Whether `agent.interrupted` was emitted for it.
    pub(crate) interruption_emitted: bool,
    /// Whether user speech pauses it.
    pub(crate) held: bool,
    /// Whether `playout.held` was emitted for the current hold.
    pub(crate) hold_emitted: bool,
    /// When the current hold silenced it, and the onset of the speech that caused the hold.
    pub(crate) silenced_by: Option<(Time, Time)>,
    /// Number of the turn that it answers.
    pub(crate) turn: Option<u32>,
    /// Whether it may begin as in a call, without the wait for silence of a conversation of several
    /// people.
    pub(crate) is_direct: bool,
    /// Whether the model may still leave it out: it is not on the floor.
    pub(crate) is_undecided: bool,
    /// True end of the speech that it answers.
    pub(crate) user_speech_end: Option<Time>,
    /// Latencies of that turn, until they are emitted.
    pub(crate) turn_times: Option<TurnTimes>,
    /// Providers of that turn so far.
    pub(crate) providers: TurnProviders,
    /// Whether `providers` has changed since the latencies were emitted.
    pub(crate) has_new_provider: bool,
    /// Current generation of the LLM.
    pub(crate) generation: Option<Generation>,
    /// Characters that the LLM has generated.
    pub(crate) generated_chars: usize,
    /// Index of the next generation.
    pub(crate) next_generation_index: u32,
    /// Rounds of tools so far.
    pub(crate) tool_rounds: u32,
    /// The tools of the last generation were started. The next generation starts after their
    /// results are in and the words are played.
    pub(crate) awaiting_tools: bool,
    /// Whether the call ends after it, unless the user says something.
    pub(crate) ends_call: bool,
    /// Utterances to speak. The first one is playing or plays next.
    pub(crate) utterances: VecDeque<Utterance>,
    /// Whether its first sample has left.
    pub(crate) has_spoken: bool,
    /// Whether any of it was sent to the TTS.
    pub(crate) tts_requested: bool,
    /// Earliest time of its first TTS request.
    pub(crate) not_before: Time,
    /// For a preemptive reply: the text that it answers, and the version of the history that it
    /// uses.
    pub(crate) preemptive_basis: Option<(String, u64)>,
}

/// A request to the LLM and its progress.
pub(crate) struct Generation {
    pub(crate) id: GenerationId,
    pub(crate) provider: Option<String>,
    pub(crate) requested_at: Time,
    pub(crate) first_token_at: Option<Time>,
    pub(crate) last_token_at: Time,
    pub(crate) tools_allowed: bool,
    pub(crate) is_fallback: bool,
    pub(crate) is_guardrail: bool,
    pub(crate) ended: bool,
    /// Whether any of it was sent to the TTS.
    pub(crate) sent_to_tts: bool,
    pub(crate) segment_count: u32,
    /// Takes the directions out of its text.
    pub(crate) filter: DirectionFilter,
    pub(crate) tool_calls: Vec<ToolCallRequest>,
}

/// A tool call that the LLM requests.
pub(crate) struct ToolCallRequest {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

/// A running tool.
pub(crate) struct RunningTool {
    pub(crate) call: ToolCallId,
    pub(crate) generation: GenerationId,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) started_at: Time,
    pub(crate) delay_message_at: Option<Time>,
    /// Its reply has ended. The result is added to the history and triggers nothing else.
    pub(crate) orphaned: bool,
}

/// Origin of an utterance's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UtteranceOrigin {
    /// A generation of the LLM.
    Generation(GenerationId),
    /// A fixed text.
    Message(SpeechSource),
}

/// The text of one generation, one say command or one message.
pub(crate) struct Utterance {
    pub(crate) origin: UtteranceOrigin,
    /// The generation that produced the text, or whose tool the message belongs to.
    pub(crate) generation: Option<GenerationId>,
    /// Assigned at the first sample.
    pub(crate) id: UtteranceId,
    pub(crate) text: String,
    /// Directions for the avatar, with their byte positions in `text`, in this order.
    pub(crate) directions: Vec<(usize, DirectionTag)>,
    /// Bytes of `text` that are cut into segments.
    pub(crate) segmented_bytes: usize,
    /// Bytes of `text` whose segments were played completely.
    pub(crate) played_bytes: usize,
    /// Segments still to be played. The first one is playing or plays next.
    pub(crate) segments: VecDeque<Segment>,
    /// Whether the text is complete.
    pub(crate) complete: bool,
    /// Time of the first sample.
    pub(crate) started_at: Option<Time>,
    /// Since when no samples have left: during a hold or a stall, and between segments. `None` while
    /// it sounds, and before its first sample.
    pub(crate) silent_since: Option<Time>,
    /// Maximum number of bytes of `text` that were heard so far.
    pub(crate) heard_bytes: usize,
    /// The part of `heard_bytes` that was emitted.
    pub(crate) reported_heard_bytes: usize,
    pub(crate) in_context: bool,
    /// The reason for waiting that was explained last.
    pub(crate) explained_wait: Option<WaitReason>,
}

/// Why an utterance waits, apart from the LLM and the TTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The minimum delay after the previous speech, or the delay of the call's first words.
    Spacing,
    /// The end of the user's speech.
    UserSpeech,
    /// Silence of all people.
    Silence,
}

/// One unit of text for the TTS: bytes `start..end` of the utterance's text.
pub(crate) struct Segment {
    /// Assigned with the TTS request.
    pub(crate) id: Option<SegmentId>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) index: u32,
    /// The expression of the avatar, if a direction sets one.
    pub(crate) expression: Option<Expression>,
    /// Whether the avatar nods.
    pub(crate) nod: bool,
    pub(crate) is_fallback: bool,
    pub(crate) provider: Option<String>,
    pub(crate) requested_at: Option<Time>,
    /// When the sound of the segment before it was complete, if that was after the request.
    pub(crate) is_next_since: Option<Time>,
    pub(crate) ready_at: Option<Time>,
    /// Whether playout may play it.
    pub(crate) play_allowed: bool,
    pub(crate) has_started: bool,
    /// Whether samples are leaving now.
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
            is_direct: false,
            is_undecided: false,
            user_speech_end: None,
            turn_times: None,
            providers: TurnProviders::default(),
            has_new_provider: false,
            generation: None,
            generated_chars: 0,
            next_generation_index: 0,
            tool_rounds: 0,
            awaiting_tools: false,
            ends_call: false,
            utterances: VecDeque::new(),
            has_spoken: false,
            tts_requested: false,
            not_before: Time::ZERO,
            preemptive_basis: None,
        }
    }

    /// The utterance whose first sample has left and whose last sample has not.
    pub(crate) fn sounding_utterance(&self) -> Option<&Utterance> {
        self.utterances.front().filter(|utterance| utterance.started_at.is_some())
    }

    /// When the first audio of its first utterance became available.
    pub(crate) fn ready_since(&self) -> Option<Time> {
        self.utterances.front()?.segments.front()?.ready_at
    }

    /// The latencies of the turn, if they were not taken yet, with the providers so far.
    pub(crate) fn take_turn_times(&mut self) -> Option<TurnTimes> {
        let mut times = self.turn_times.take()?;
        times.providers.clone_from(&self.providers);
        self.has_new_provider = false;
        Some(times)
    }

    /// Audio of this provider is played: it serves the turn.
    pub(crate) fn note_tts_provider(&mut self, provider: Option<&String>) {
        self.has_new_provider |= add_provider(&mut self.providers.tts, provider);
    }

    /// The segments that wait for their first audio, and since when. A segment behind one that is
    /// being spoken is not waiting: a TTS may speak them one after the other.
    pub(crate) fn segments_without_audio(&self) -> impl Iterator<Item = (&Segment, Time)> {
        let mut is_speaking = false;
        self.utterances.iter().flat_map(|utterance| &utterance.segments).filter_map(
            move |segment| {
                let is_behind = is_speaking;
                is_speaking |= segment.ready_at.is_some() && segment.duration.is_none();
                let since = segment.is_next_since.or(segment.requested_at)?;
                (segment.ready_at.is_none() && !is_behind).then_some((segment, since))
            },
        )
    }

    /// The sound of a segment is complete: one of those that were requested after it is next.
    pub(crate) fn tts_ended(&mut self, now: Time) {
        let segments = self.utterances.iter_mut().flat_map(|utterance| &mut utterance.segments);
        for segment in segments.filter(|segment| segment.ready_at.is_none()) {
            segment.is_next_since = segment.requested_at.map(|_| now);
        }
    }

    /// Whether a generation is running.
    pub(crate) fn is_generating(&self) -> bool {
        self.generation.as_ref().is_some_and(|generation| !generation.ended)
    }

    /// Whether it is an answer. The agent is thinking while an answer is not playing.
    pub(crate) fn counts_as_thinking(&self) -> bool {
        matches!(self.kind, ReplyKind::Turn | ReplyKind::Guardrail)
    }

    /// Whether it is a greeting or a recording message without a played sample. Such a reply is
    /// discarded without an interruption event.
    pub(crate) fn is_unheard_opening(&self) -> bool {
        matches!(self.kind, ReplyKind::Greeting | ReplyKind::RecordingMessage) && !self.has_spoken
    }
}

impl Utterance {
    pub(crate) fn new(origin: UtteranceOrigin, text: String, complete: bool) -> Self {
        let generation = if let UtteranceOrigin::Generation(generation) = &origin {
            Some(*generation)
        } else {
            None
        };
        Self {
            origin,
            generation,
            id: UtteranceId(0),
            text,
            directions: Vec::new(),
            segmented_bytes: 0,
            played_bytes: 0,
            segments: VecDeque::new(),
            complete,
            started_at: None,
            silent_since: None,
            heard_bytes: 0,
            reported_heard_bytes: 0,
            in_context: true,
            explained_wait: None,
        }
    }

    /// Cuts the next `len` bytes of the text into a segment, without surrounding whitespace.
    /// Returns false if they contain only whitespace.
    pub(crate) fn push_segment(&mut self, len: usize, index: u32) -> bool {
        let raw = &self.text[self.segmented_bytes..self.segmented_bytes + len];
        let start = self.segmented_bytes + (raw.len() - raw.trim_start().len());
        let end = start + raw.trim().len();
        let bytes = self.segmented_bytes..self.segmented_bytes + len;
        self.segmented_bytes = bytes.end;
        if start >= end {
            return false;
        }
        let (expression, nod) = (self.expression_of(start..end), self.has_nod(bytes));
        self.segments.push_back(Segment {
            id: None,
            start,
            end,
            index,
            expression,
            nod,
            is_fallback: false,
            provider: None,
            requested_at: None,
            is_next_since: None,
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

    /// The text that was heard by `now`: a prefix of the text that never shrinks.
    pub(crate) fn update_heard_text(&mut self, now: Time) -> &str {
        self.heard_bytes = self.heard_len(now);
        &self.text[..self.heard_bytes]
    }

    /// The same without an effect on later answers.
    pub(crate) fn heard_text(&self, now: Time) -> &str {
        &self.text[..self.heard_len(now)]
    }

    fn heard_len(&self, now: Time) -> usize {
        let segment = self.segments.front().filter(|segment| segment.has_started);
        let heard =
            match segment.map(|segment| (segment.start, segment.heard_bytes(&self.text, now))) {
                Some((start, len)) if len > 0 => start + len,
                _ => self.played_bytes,
            };
        self.heard_bytes.max(heard)
    }

    /// The next segment that may be sent to the TTS: enough of those before it was played.
    pub(crate) fn next_request(&self, phrasing: Phrasing) -> Option<usize> {
        let mut next = self.segments.iter().take(phrasing.max_segments_ahead());
        let index = next.position(|segment| segment.requested_at.is_none())?;
        let before = self.segments.iter().take(index);
        let samples_ahead: u64 = before
            .map(|segment| segment.remaining_samples(&self.text[segment.start..segment.end]))
            .fold(0, u64::saturating_add);
        (samples_ahead <= phrasing.max_samples_ahead()).then_some(index)
    }

    pub(crate) fn is_tool_result_message(&self) -> bool {
        let UtteranceOrigin::Message(SpeechSource::Tool { message, .. }) = &self.origin else {
            return false;
        };
        matches!(message, ToolMessage::OnSuccess | ToolMessage::OnError)
    }
}

impl Segment {
    /// Playout position at `now`, extrapolated from the last report at 48 samples per ms while
    /// samples leave. It never exceeds the duration, if that is known.
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

    /// Samples that were not played by the last report, which a late tick does not change. Without
    /// a known duration, they are estimated from the text: 15 characters per second, or 5 of
    /// Chinese, Japanese and Korean writing.
    fn remaining_samples(&self, text: &str) -> u64 {
        let of_char = |c| if is_ideograph(c) { 48_000 / 5 } else { 48_000 / 15 };
        // For each input of a call, so the usual text is not read character by character.
        let estimate = || match text.is_ascii() {
            true => text.len() as u64 * (48_000 / 15),
            false => text.chars().map(of_char).sum(),
        };
        let length = self.duration.map_or_else(estimate, Position::as_samples);
        length.saturating_sub(self.base_position.as_samples())
    }

    /// Stops the extrapolation of the position at `now`.
    pub(crate) fn freeze_position(&mut self, now: Time) {
        self.base_position = self.position(now);
        self.base_time = now;
        self.playing = false;
    }

    /// Bytes of the segment's text that were heard.
    pub(crate) fn heard_bytes(&self, text: &str, now: Time) -> usize {
        heard_text::heard_prefix_len(
            &text[self.start..self.end],
            &self.word_times,
            self.duration,
            self.position(now),
        )
    }
}
