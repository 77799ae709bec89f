//! What the agent says: generations, tools, the TTS, the first sample and the last.
//!
//! Assumptions where the turn-taking page leaves room:
//!
//! - The TTS request of a reply that waits for other speech follows the end of that speech.
//! - Segments before a failed one are still spoken.
//! - The result of a tool enters the history at the time it arrives.

use serde_json::{Value, json};

use super::barge_in::position_seconds;
use super::case::{Message, Micros, SECOND, ScriptedReply};
use super::heard_text;
use super::record::{
    CallRecord, Generation, ReplyKind, RunningTool, Segment, Stage, Utterance, UtteranceKind,
};

/// A stage that fails for this long ends the call.
const MAX_STAGE_FAILURE_TIME: Micros = 30 * SECOND;
/// Audio that the TTS adds to each segment, in µs.
const SEGMENT_TAIL: Micros = 10_000;

impl CallRecord<'_> {
    /// Time from the request to the first token, and to the whole text.
    pub(crate) fn llm_times(&self, answer: Option<usize>) -> (Micros, Micros) {
        answer.map_or((self.case.defaults.0, self.case.defaults.1), |n| {
            (self.case.replies[n].llm_ttft, self.case.replies[n].llm_duration)
        })
    }

    /// Starts the first generation of an answer to `text`.
    pub(crate) fn request_llm(&mut self, r: usize, text: &str) {
        let wanted = heard_text::normalize_text(text);
        let fits = |answer: &ScriptedReply| {
            answer.in_reply_to == "*"
                || !answer.in_reply_to.starts_with("tool:")
                    && heard_text::normalize_text(&answer.in_reply_to) == wanted
        };
        let answer = self.case.replies.iter().position(fits);
        self.request_generation(r, answer);
    }

    fn request_generation(&mut self, r: usize, answer: Option<usize>) {
        let tools = self.replies[r].generations.len() < self.case.settings.max_tool_steps;
        let requested = self.next_request();
        self.replies[r].generations.push(Generation {
            requested,
            script_index: answer,
            tools_allowed: tools,
            first_token_at: None,
            done: false,
            failed: false,
        });
        self.emit("llm.started", json!({}));
    }

    pub(crate) fn first_token_received(&mut self, r: usize) {
        let now = self.now;
        let Some(step) = self.replies[r].generations.last_mut() else { return };
        let fails = step.script_index.is_some_and(|n| self.case.replies[n].llm_fails);
        if fails {
            self.llm_failed(r, "scripted");
        } else {
            step.first_token_at = Some(now);
        }
    }

    /// A stage that has failed for 30 s without a success, counted from its first failure, ends the
    /// call.
    fn stage_failed(&mut self, stage: Stage, reason: &str) {
        let name = if stage == Stage::Llm { "llm" } else { "tts" };
        self.emit("error", json!({"stage": name, "reason": reason}));
        self.stage_outcomes.push((self.now, stage, false));
        let of_stage = self.stage_outcomes.iter().rev().filter(|(_, other, _)| *other == stage);
        let first =
            of_stage.take_while(|(_, _, well)| !well).last().map_or(self.now, |(at, _, _)| *at);
        self.failure_limit_reached |= self.now - first >= MAX_STAGE_FAILURE_TIME;
    }

    pub(crate) fn llm_failed(&mut self, r: usize, reason: &str) {
        self.stage_failed(Stage::Llm, reason);
        if let Some(step) = self.replies[r].generations.last_mut() {
            (step.done, step.failed) = (true, true);
        }
        if self.replies[r].floor_position.is_none() {
            self.replies[r].ended_at = Some(self.now);
            return;
        }
        self.push_error_message(r);
    }

    fn push_error_message(&mut self, r: usize) {
        if let Some(Message { text: say, audio_duration: audio, .. }) =
            self.case.settings.error_message.clone()
        {
            let utterance = self.new_message_utterance(UtteranceKind::Message, &say, audio);
            self.replies[r].utterances.push(utterance);
        }
    }

    /// The whole text and the tool calls of a generation are available.
    pub(crate) fn whole_text_received(&mut self, r: usize) {
        self.stage_outcomes.push((self.now, Stage::Llm, true));
        let Some(step) = self.replies[r].generations.last_mut() else { return };
        step.done = true;
        let Some(n) = step.script_index else { return };
        let answer = &self.case.replies[n];
        if !answer.segments.is_empty() {
            let segments = answer.segments.iter().map(|part| Segment {
                word_times: part.word_times.clone(),
                tts_fails: part.tts_fails,
                ..Segment::new(&part.text, part.audio_duration + SEGMENT_TAIL)
            });
            let segments = segments.collect();
            let utterance = Utterance {
                kind: UtteranceKind::Generation,
                segments,
                ttfb: answer.tts_ttfb,
                closed: false,
            };
            self.replies[r].utterances.push(utterance);
        }
        if self.replies[r].floor_position.is_some() {
            // The text comes before the tool calls, so its TTS request comes first.
            if let Some((_, u)) = self
                .needs_tts()
                .filter(|(whose, _)| *whose == r && self.tts_allowed_at(r) <= self.now)
            {
                self.request_tts(r, u);
            }
            self.apply_generation(r);
        }
    }

    /// Applies guardrail and tool calls, once the turn is committed and the generation has ended.
    pub(crate) fn apply_generation(&mut self, r: usize) {
        let Some(step) =
            self.replies[r].generations.last().filter(|step| step.done && !step.failed)
        else {
            return;
        };
        let Some(answer) = step.script_index.map(|n| &self.case.replies[n]) else { return };
        let calls = if step.tools_allowed && !answer.is_guardrail {
            answer.tool_calls.clone()
        } else {
            Vec::new()
        };
        if answer.is_guardrail {
            self.replies[r].interruptible = false;
            if self.replies[r].is_held() {
                self.resume(r);
            }
        }
        let (ending, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(name, _)| self.is_end_call(name));
        if let Some((_, arguments)) = ending.first() {
            self.say_farewell(r, arguments["farewell"].as_str().unwrap_or_default());
        }
        self.replies[r].awaiting_tools = !calls.is_empty();
        for (name, arguments) in calls {
            let tool = self.case.tools.iter().position(|tool| tool.name == name);
            let started = self.next_request();
            let run = RunningTool {
                reply: r,
                script_index: tool,
                name,
                arguments,
                started,
                result_at: None,
                delay_judged: false,
            };
            self.tools.push(run);
            match tool.map(|tool| self.case.tools[tool].on_start.clone()) {
                None => self.tool_ended(self.tools.len() - 1, Err("unknown tool".into())),
                Some(words) => self.push_tool_message(r, UtteranceKind::OnStart, words),
            }
        }
    }

    fn is_end_call(&self, name: &str) -> bool {
        self.case.tools.iter().any(|tool| tool.ends_call && tool.name == name)
    }

    /// The last words of a call, unless the user is speaking.
    fn say_farewell(&mut self, r: usize, farewell: &str) {
        if self.replies[r].is_held() || self.user_input.active_segment().is_some() || self.ending {
            return;
        }
        if !farewell.is_empty() {
            let utterance = self.new_message_utterance(UtteranceKind::Message, farewell, SECOND);
            self.replies[r].utterances.push(utterance);
        }
        self.replies[r].interruptible = false;
        self.replies[r].ends_call = true;
    }

    fn push_tool_message(&mut self, r: usize, of: UtteranceKind, words: Option<Message>) {
        if let Some(Message { text: say, audio_duration: audio, .. }) = words {
            let utterance = self.new_message_utterance(of, &say, audio);
            self.replies[r].utterances.push(utterance);
        }
    }

    pub(crate) fn tool_delay_due(&mut self, n: usize) {
        self.tools[n].delay_judged = true;
        let r = self.tools[n].reply;
        let quiet =
            |r: &usize| !self.replies[*r].is_held() && self.replies[*r].front_utterance().is_none();
        let silent = self.floor().iter().all(quiet) && self.replies[r].ended_at.is_none();
        let words =
            self.tools[n].script_index.and_then(|tool| self.case.tools[tool].on_delay.clone());
        if silent && self.replies[r].awaiting_tools {
            self.push_tool_message(r, UtteranceKind::OnDelay(n), words);
        }
    }

    pub(crate) fn tool_ended(&mut self, n: usize, result: Result<Value, String>) {
        self.tools[n].result_at = Some(self.now);
        let RunningTool { reply: r, ref name, ref arguments, .. } = self.tools[n];
        let (name, arguments) = (name.clone(), arguments.clone());
        let value = match &result {
            Ok(value) => value.clone(),
            Err(reason) => {
                self.emit("error", json!({"stage": "tool", "reason": reason}));
                json!(reason)
            }
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.emit(
            "tool_call",
            json!({"tool_name": name, "parameters": arguments, "result": value}),
        );
        self.append_history(
            json!({"role": "tool", "name": name, "arguments": arguments, "text": text}),
        );
        if self.replies[r].ended_at.is_some() || !self.replies[r].awaiting_tools {
            return;
        }
        for utterance in &mut self.replies[r].utterances {
            if utterance.kind == UtteranceKind::OnDelay(n) && !utterance.has_started() {
                utterance.closed = true;
                utterance.discard_from(0);
            }
        }
        let script = self.tools[n].script_index.map(|tool| &self.case.tools[tool]);
        let words = script.and_then(|tool| match result {
            Ok(_) => tool.on_success.clone(),
            Err(_) => tool.on_error.clone(),
        });
        self.push_tool_message(r, UtteranceKind::OnResult, words);
    }

    /// An utterance with a fixed text.
    pub(crate) fn new_message_utterance(
        &self,
        of: UtteranceKind,
        say: &str,
        audio: Micros,
    ) -> Utterance {
        let segments = vec![Segment::new(say, audio + SEGMENT_TAIL)];
        Utterance { kind: of, segments, ttfb: self.case.defaults.2, closed: false }
    }

    /// The earliest time of a reply's TTS request.
    fn tts_allowed_at(&self, r: usize) -> Micros {
        let spaced = self
            .playout_ends
            .iter()
            .max()
            .map_or(0, |end| end + self.case.settings.min_consecutive_speech_delay);
        self.replies[r].not_before.max(spaced)
    }

    /// The reply and utterance that need the TTS now: the reply that holds the floor, or else a
    /// preemptive reply.
    fn needs_tts(&self) -> Option<(usize, usize)> {
        let of_preparation =
            || self.preemptive_reply().filter(|_| self.case.settings.preemptive_tts);
        let r = self.head().or_else(of_preparation)?;
        let u = self.replies[r].front_utterance()?;
        self.replies[r].utterances[u]
            .segments
            .iter()
            .any(|segment| segment.requested.is_none() && !segment.discarded)
            .then_some((r, u))
    }

    pub(crate) fn next_tts_at(&self) -> Option<Micros> {
        self.needs_tts().map(|(r, _)| self.tts_allowed_at(r)).filter(|at| *at > self.now)
    }

    /// Performs the next action that is possible without a new event. False if there is none.
    pub(crate) fn settle_once(&mut self) -> bool {
        if self.is_over() {
            self.end_call("agent_ended", Value::Null);
            return true;
        }
        if self.can_say_recording_message() {
            self.say_recording_message();
            return true;
        }
        if self.can_say_warning() {
            self.say_warning();
            return true;
        }
        if let Some(r) = self.head()
            && self.can_start_next_generation(r)
        {
            self.start_next_generation(r);
            return true;
        }
        if let Some((r, u)) = self.needs_tts()
            && self.tts_allowed_at(r) <= self.now
        {
            self.request_tts(r, u);
            return true;
        }
        let Some(r) = self.head() else { return false };
        let reply = &self.replies[r];
        let Some(u) = reply.front_utterance() else {
            if reply.is_generating() || reply.awaiting_tools {
                return false;
            }
            self.end_reply(r);
            return true;
        };
        let utterance = &reply.utterances[u];
        let Some(p) = utterance.current_segment() else {
            self.finish_utterance(r, u);
            return true;
        };
        let segment = &utterance.segments[p];
        if segment.ready_at.is_none() || segment.started_at.is_some() || reply.is_held() {
            return false;
        }
        if !utterance.has_started()
            && reply.interruptible
            && self.user_input.active_segment().is_some()
        {
            if self.holds_first_sample(r) {
                self.hold(r);
                return true;
            }
            return false;
        }
        self.start_segment(r, u, p);
        true
    }

    /// All text was played and all results are in.
    fn can_start_next_generation(&self, r: usize) -> bool {
        let reply = &self.replies[r];
        let open = reply.utterances.iter().filter(|utterance| !utterance.closed);
        reply.awaiting_tools
            && !self.has_running_tool(r)
            && open.into_iter().all(|utterance| utterance.kind == UtteranceKind::OnResult)
    }

    fn start_next_generation(&mut self, r: usize) {
        self.replies[r].awaiting_tools = false;
        let last = self.replies[r].generations.last().and_then(|step| step.script_index);
        let calls = last.map(|n| self.case.replies[n].tool_calls.clone()).unwrap_or_default();
        let fits = |answer: &ScriptedReply| {
            answer
                .in_reply_to
                .strip_prefix("tool:")
                .is_some_and(|name| calls.iter().any(|(call, _)| call == name))
        };
        let answer = self.case.replies.iter().position(fits);
        self.request_generation(r, answer);
    }

    fn request_tts(&mut self, r: usize, u: usize) {
        for p in 0..self.replies[r].utterances[u].segments.len() {
            let requested = self.next_request();
            let segment = &mut self.replies[r].utterances[u].segments[p];
            if !segment.discarded {
                segment.requested = Some(requested);
                let text = segment.text.clone();
                self.emit("tts.started", json!({"text": text}));
            }
        }
    }

    pub(crate) fn first_audio_received(&mut self, r: usize, u: usize, p: usize) {
        let now = self.now;
        let segment = &mut self.replies[r].utterances[u].segments[p];
        if segment.tts_fails {
            self.tts_failed(r, u, p, "scripted");
        } else {
            segment.ready_at = Some(now);
            self.stage_outcomes.push((now, Stage::Tts, true));
        }
    }

    pub(crate) fn tts_failed(&mut self, r: usize, u: usize, p: usize, reason: &str) {
        self.stage_failed(Stage::Tts, reason);
        let reply = &mut self.replies[r];
        if reply.floor_position.is_none() {
            reply.ended_at = Some(self.now);
            return;
        }
        reply.utterances[u].discard_from(p);
        if reply.utterances[u].kind != UtteranceKind::Generation {
            return;
        }
        for utterance in reply.utterances.iter_mut().skip(u + 1) {
            utterance.discard_from(0);
            utterance.closed = true;
        }
        reply.awaiting_tools = false;
        self.cancel_llm(r);
        self.push_error_message(r);
    }

    fn start_segment(&mut self, r: usize, u: usize, p: usize) {
        let now = self.now;
        let first = !self.replies[r].utterances[u].has_started();
        let (_, order) = self.next_request();
        let segment = &mut self.replies[r].utterances[u].segments[p];
        (segment.started_at, segment.running_since) = (Some(now), order);
        self.emit("playout.started", json!({"position": 0.0}));
        if first {
            let text = self.replies[r].utterances[u].text();
            self.emit("agent.started_speaking", json!({"text": text}));
        }
        self.update_agent_state();
    }

    /// The playing segment was played to its end.
    pub(crate) fn finish_segment(&mut self, r: usize) {
        let now = self.now;
        let Some(u) = self.replies[r].sounding_utterance() else { return };
        let Some(p) = self.replies[r].utterances[u].current_segment() else { return };
        let segment = &mut self.replies[r].utterances[u].segments[p];
        segment.ended_at = Some(now);
        let fields = json!({
            "position": position_seconds(segment.length),
            "interrupted": false,
            "heard": segment.text,
        });
        self.emit("playout.finished", fields);
    }

    fn finish_utterance(&mut self, r: usize, u: usize) {
        let utterance = &self.replies[r].utterances[u];
        let (sounded, text) = (utterance.has_started(), utterance.text());
        self.replies[r].utterances[u].closed = true;
        if sounded {
            self.playout_ends.push(self.now);
            self.emit_stopped_speaking(&text, false);
        }
        let reply = &self.replies[r];
        if reply.front_utterance().is_some() || reply.is_generating() || reply.awaiting_tools {
            self.update_agent_state();
        }
    }

    fn end_reply(&mut self, r: usize) {
        self.replies[r].ended_at = Some(self.now);
        self.farewell_spoken |= self.replies[r].ends_call;
        self.update_agent_state();
        if self.replies[r].kind == ReplyKind::Exit {
            self.end_call("max_call_duration", Value::Null);
        }
    }
}

impl Segment {
    fn new(say: &str, length: Micros) -> Self {
        Self {
            text: say.to_owned(),
            length,
            word_times: Vec::new(),
            tts_fails: false,
            requested: None,
            ready_at: None,
            started_at: None,
            running_since: 0,
            ended_at: None,
            discarded: false,
        }
    }
}

impl Utterance {
    /// Discards this segment and those after it, unless they have started to play.
    fn discard_from(&mut self, from: usize) {
        for segment in
            self.segments.iter_mut().skip(from).filter(|segment| segment.started_at.is_none())
        {
            segment.discarded = true;
        }
    }
}
