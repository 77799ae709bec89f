//! The LLM's side of a reply: generations and failures.

use core::time::Duration;

use crate::contract::direction::DirectionFilter;
use crate::contract::event::{Event, HistoryItem, Stage, Timeline, TurnTimes};
use crate::contract::input::{GenerationId, LlmEvent};
use crate::contract::output::{LlmRequest, Output, SpeechSource};
use crate::contract::providers::add_provider;
use crate::contract::spec::Phrasing;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::floor::cut_segments;
use crate::machine::people::SpokenTurn;
use crate::machine::reply::{
    Generation, Reply, ReplyKind, ToolCallRequest, Utterance, UtteranceOrigin,
};

/// Timeout for the first token, each further token, and the first audio: 5 s. The additional
/// microsecond makes an event at exactly 5 s count.
pub(crate) const PROVIDER_TIMEOUT: Duration = Duration::from_micros(5_000_001);

/// Maximum length in characters of one live reply, over all its generations: about twenty minutes
/// of speech. A longer reply means that the model fails to stop.
pub(crate) const MAX_REPLY_CHARS: usize = 20_000;

impl Conversation {
    /// Commits a turn: adds it to the history and starts a reply if `wants_reply` is set. A turn
    /// with `is_typed` does not use the preemptive reply, which belongs to the open turn.
    pub(crate) fn commit_turn(
        &mut self,
        text: String,
        times: TurnTimes,
        spoken: SpokenTurn,
        wants_reply: bool,
        is_typed: bool,
    ) {
        let SpokenTurn { span: speech, speaker, is_direct } = spoken;
        let speech_end = speech.map(|(_, end)| end);
        self.unanswered_callouts = 0;
        let wants_reply = wants_reply && !self.is_ending();
        if wants_reply {
            self.cancel_farewell();
            self.cancel_decision("a new turn is answered");
            if self
                .floor
                .front()
                .is_some_and(|head| head.interruptible || head.is_unheard_opening())
            {
                self.explain_decision(|| "cancelled: a new turn is committed".into());
                self.cancel_reply(0, true);
            }
            self.cancel_waiting_replies();
        }
        let timeline = Timeline {
            speech_end: speech_end.map(Time::as_seconds),
            committed: Some(self.now.as_seconds()),
            ..Timeline::default()
        };
        let times = TurnTimes { turn: self.next_turn, timeline, ..times };
        self.next_turn += 1;
        self.emit(Event::UtteranceCommitted { text: text.clone(), speaker: speaker.clone() });
        let item =
            HistoryItem { speaker, ..crate::machine::history::user_item(text.clone(), speech) };
        if !wants_reply {
            self.discard_preemptive_reply("the turn gets no reply");
            self.append_history(item, None);
            self.emit_turn_times(Some(times));
            return;
        }
        let adopted = if is_typed { None } else { self.adopt_preemptive_reply(&text) };
        self.append_history(item, None);
        let fresh = adopted.is_none();
        let mut reply = match adopted {
            Some(reply) => reply,
            None => self.new_reply(ReplyKind::Turn, self.spec.allow_interruptions),
        };
        let known = reply.turn_times.take().unwrap_or_default();
        reply.turn = Some(times.turn);
        reply.is_direct = is_direct || is_typed;
        reply.user_speech_end = speech_end;
        let timeline =
            Timeline { llm_first_token: known.timeline.llm_first_token, ..times.timeline.clone() };
        reply.providers.stt.clone_from(&times.providers.stt);
        reply.turn_times = Some(TurnTimes { llm_ttft: known.llm_ttft, timeline, ..times });
        self.last_turn_times.clone_from(&reply.turn_times);
        self.last_turn_speech_end = speech_end;
        reply.preemptive_basis = None;
        if !self.floor.is_empty() {
            self.explain_decision(|| "the reply waits until the previous speech has ended".into());
        }
        self.floor.push_back(reply);
        self.update_agent_state();
        let index = self.floor.len() - 1;
        if fresh {
            if let Some(mut reply) = self.floor.remove(index) {
                self.request_llm(&mut reply, None, false);
                self.floor.insert(index, reply);
            }
        } else {
            self.start_tools(index);
        }
    }

    /// Starts the head's next generation, after its tools.
    pub(crate) fn start_next_generation(&mut self) {
        let Some(mut head) = self.floor.pop_front() else { return };
        head.awaiting_tools = false;
        self.request_llm(&mut head, None, false);
        self.floor.push_front(head);
        self.update_agent_state();
    }

    pub(crate) fn request_llm(
        &mut self,
        reply: &mut Reply,
        open_turn_text: Option<&str>,
        fallback: bool,
    ) {
        let id = GenerationId { epoch: reply.epoch, index: reply.next_generation_index };
        reply.next_generation_index += 1;
        let tools = reply.tool_rounds < self.spec.max_tool_steps;
        if !tools && reply.tool_rounds > 0 {
            let max_tool_steps = self.spec.max_tool_steps;
            self.explain_decision(|| {
                format!("max_tool_steps {max_tool_steps}: requested once more without tools")
            });
        }
        reply.generation = Some(Generation {
            id,
            provider: None,
            requested_at: self.now,
            first_token_at: None,
            last_token_at: self.now,
            tools_allowed: tools,
            is_fallback: fallback,
            is_guardrail: false,
            ended: false,
            sent_to_tts: false,
            segment_count: 0,
            filter: DirectionFilter::default(),
            tool_calls: Vec::new(),
        });
        // Nobody knows of a reply that the model may leave out.
        if !reply.is_undecided {
            self.emit(Event::LlmStarted);
        }
        let history = self.history.for_llm(open_turn_text);
        let preemptive = open_turn_text.is_some();
        self.outputs.push_back(Output::RequestLlm(LlmRequest {
            generation: id,
            history,
            tools_allowed: tools,
            use_fallback: fallback,
            preemptive,
            may_stay_silent: reply.is_undecided,
        }));
    }

    /// Handles an event of a generation. A reply's index on the floor is `None` for the preemptive
    /// reply.
    pub(crate) fn handle_llm_event(&mut self, id: GenerationId, event: LlmEvent) {
        let Some(event) = self.hold_undecided_event(id, event) else { return };
        let is_generating = |reply: &Reply| {
            reply
                .generation
                .as_ref()
                .is_some_and(|generation| generation.id == id && !generation.ended)
        };
        let index = self.floor.iter().position(is_generating);
        if index.is_none() && !self.preemptive_reply.as_deref().is_some_and(is_generating) {
            return;
        }
        match event {
            LlmEvent::Failed(reason) => return self.llm_failed(index, reason, false),
            LlmEvent::Exhausted(reason) => return self.llm_failed(index, reason, true),
            _ => {}
        }
        let (now, phrasing) = (self.now, self.spec.phrasing);
        let Some(reply) = self.reply_mut(index) else { return };
        let Some(generation) = reply.generation.as_mut() else { return };
        if let LlmEvent::Provider(provider) = event {
            generation.provider = Some(provider);
            return;
        }
        generation.last_token_at = now;
        if generation.first_token_at.is_none() {
            generation.first_token_at = Some(now);
            let provider = generation.provider.as_ref();
            reply.has_new_provider |= add_provider(&mut reply.providers.llm, provider);
            if generation.id.index == 0
                && let Some(times) = reply.turn_times.as_mut()
            {
                times.llm_ttft = Some(now.since(generation.requested_at).as_secs_f64());
                times.timeline.llm_first_token = Some(now.as_seconds());
            }
        }
        let mut over = false;
        match event {
            LlmEvent::Provider(_)
            | LlmEvent::Started
            | LlmEvent::Failed(_)
            | LlmEvent::Exhausted(_) => {}
            LlmEvent::Text(mut text) => {
                let room = MAX_REPLY_CHARS.saturating_sub(reply.generated_chars);
                if phrasing == Phrasing::Stream
                    && let Some((end, _)) = text.char_indices().nth(room)
                {
                    text.truncate(end);
                    generation.tool_calls.clear();
                    over = true;
                }
                reply.generated_chars += text.chars().count();
                let visible = reply.add_text(&text, phrasing);
                self.emit_llm_text(visible);
            }
            LlmEvent::Flush => {
                let held = reply.end_segment();
                self.emit_llm_text(held);
            }
            LlmEvent::ToolCall { id, name, arguments } => {
                if generation.tools_allowed && !generation.is_guardrail {
                    generation.tool_calls.push(ToolCallRequest { id, name, arguments });
                }
            }
            LlmEvent::Guardrail => {
                generation.is_guardrail = true;
                generation.tool_calls.clear();
            }
            LlmEvent::End { prompt_tokens, completion_tokens } => {
                self.llm_ended(index, id, (prompt_tokens, completion_tokens));
            }
        }
        if over {
            // The generation is treated as if it had ended here, without tool calls.
            if !core::mem::replace(&mut self.has_cut_reply, true) {
                self.emit(Event::Warning {
                    text: format!(
                        "The language model's reply was cut at {MAX_REPLY_CHARS} characters."
                    ),
                });
            }
            self.outputs.push_back(Output::CancelLlm(id));
            self.llm_ended(index, id, (0, 0));
        }
    }

    fn emit_llm_text(&mut self, text: String) {
        if !text.is_empty() {
            self.emit(Event::LlmText { text });
        }
    }

    /// A reply on the floor, or for `None` the preemptive one.
    fn reply_mut(&mut self, index: Option<usize>) -> Option<&mut Reply> {
        match index {
            Some(index) => self.floor.get_mut(index),
            None => self.preemptive_reply.as_deref_mut(),
        }
    }

    fn llm_ended(
        &mut self,
        index: Option<usize>,
        id: GenerationId,
        (prompt_tokens, completion_tokens): (u32, u32),
    ) {
        let phrasing = self.spec.phrasing;
        let held = self.reply_mut(index).map(Reply::add_held_text).unwrap_or_default();
        self.emit_llm_text(held);
        let Some(reply) = self.reply_mut(index) else { return };
        let Some(generation) = reply.generation.as_mut() else { return };
        let words = utterance_of(&mut reply.utterances, id);
        // A TTS makes no sound of a text without letters and digits.
        let is_empty =
            words.as_ref().is_none_or(|words| !words.text.contains(char::is_alphanumeric));
        if phrasing == Phrasing::Stream && is_empty && generation.tool_calls.is_empty() {
            self.llm_failed(index, "empty answer".into(), false);
            return;
        }
        generation.ended = true;
        if let Some(words) = words {
            words.text.truncate(words.text.trim_end().len());
            words.segmented_bytes = words.segmented_bytes.min(words.text.len());
            words.complete = true;
            cut_segments(words, phrasing, &mut generation.segment_count);
        }
        let guarded = generation.is_guardrail;
        if guarded {
            reply.interruptible = false;
        }
        let held = reply.held;
        self.stage_recovered(Stage::Llm);
        self.emit(Event::LlmStopped { prompt_tokens, completion_tokens });
        if let Some(index) = index {
            if guarded && held && index == 0 {
                self.resume("a guardrail's response cannot be held");
            }
            self.start_tools(index);
        }
    }

    /// Fails a generation that produced no token for too long.
    pub(crate) fn llm_timed_out(&mut self) {
        if self.decision_timed_out() {
            return;
        }
        let now = self.now;
        let late = |reply: &Reply| {
            let generation = reply.generation.as_ref().filter(|generation| {
                !generation.ended && generation.last_token_at + PROVIDER_TIMEOUT <= now
            })?;
            Some((generation.id, generation.last_token_at, generation.first_token_at.is_none()))
        };
        let found = self
            .floor
            .iter()
            .enumerate()
            .find_map(|(index, reply)| Some((Some(index), late(reply)?)));
        let found = found.or_else(|| Some((None, late(self.preemptive_reply.as_deref()?)?)));
        if let Some((index, (id, last, first))) = found {
            self.explain_decision(|| {
                let token = if first { "first" } else { "further" };
                format!("the LLM has failed: no {token} token for 5s (fixed) since {last}")
            });
            self.outputs.push_back(Output::CancelLlm(id));
            self.llm_failed(index, "timeout".into(), false);
        }
    }

    /// A generation has failed. `is_exhausted`: no fallback is left.
    fn llm_failed(&mut self, index: Option<usize>, reason: String, is_exhausted: bool) {
        self.stage_failed(Stage::Llm, reason);
        let Some(index) = index else {
            if let Some(preemptive_reply) = self.preemptive_reply.take()
                && preemptive_reply.tts_requested
            {
                self.outputs.push_back(Output::Cancel(preemptive_reply.epoch));
            }
            return;
        };
        let Some(mut reply) = self.floor.remove(index) else { return };
        let first = reply.generation.as_ref().is_some_and(|generation| generation.id.index == 0);
        if first && let Some(times) = reply.turn_times.as_mut() {
            (times.llm_ttft, times.timeline.llm_first_token) = (None, None);
        }
        let use_fallback = self.spec.fallback_llm
            && !is_exhausted
            && reply
                .generation
                .as_ref()
                .is_some_and(|generation| !generation.is_fallback && !generation.sent_to_tts);
        if use_fallback {
            if let Some(generation) = &reply.generation {
                let from = UtteranceOrigin::Generation(generation.id);
                reply.utterances.retain(|utterance| utterance.origin != from);
            }
            self.explain_decision(|| "the fallback LLM is requested".into());
            self.request_llm(&mut reply, None, true);
            self.floor.insert(index, reply);
            return;
        }
        if let Some(generation) = reply.generation.as_mut() {
            generation.ended = true;
            generation.tool_calls.clear();
            if let Some(words) = utterance_of(&mut reply.utterances, generation.id) {
                // Only segments that the TTS has already received are spoken.
                while words.segments.back().is_some_and(|segment| segment.requested_at.is_none()) {
                    words.segments.pop_back();
                }
                let end = words.segments.back().map_or(words.played_bytes, |segment| segment.end);
                words.text.truncate(end);
                words.segmented_bytes = end;
                words.complete = true;
            }
        }
        self.push_error_message(&mut reply);
        self.floor.insert(index, reply);
        self.update_agent_state();
    }

    /// Appends the error message as the last utterance of a reply.
    pub(crate) fn push_error_message(&mut self, reply: &mut Reply) {
        if let Some(text) = self.spec.error_message.clone() {
            self.explain_decision(|| "error_message is spoken".into());
            let apology = self.new_message_utterance(SpeechSource::Error, text);
            reply.utterances.push_back(apology);
        }
    }
}

/// The utterance of a generation.
pub(crate) fn utterance_of(
    utterances: &mut std::collections::VecDeque<Utterance>,
    id: GenerationId,
) -> Option<&mut Utterance> {
    utterances
        .iter_mut()
        .rev()
        .find(|utterance| utterance.origin == UtteranceOrigin::Generation(id))
}
