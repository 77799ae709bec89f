//! Executes the outputs of the conversation. `stage_events` passes the results of models and tools
//! back to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::event::{AgentState, Event, EventEnvelope};
use conversation::input::{Input, PlayoutEvent, SegmentId, SpeechSegmentId, ToolCallId, TtsEvent};
use conversation::output::{CommandOutcome, LlmRequest, Output, TtsRequest};
use engine_api::{CommandError, Pronunciation, Tool, ToolBackend};
use models::{Handle, Sink};
use serde_json::Value;
use tracing::Instrument as _;

use super::client::ClientTool;
use super::{Call, ReplyTarget, usage};
use crate::messages::{GuardrailHit, StageEvent};
use crate::speak::tts;
use crate::think::{call_span, guardrails, llm, tools};

/// Time after which a client tool without a result has failed.
const CLIENT_TOOL_TIMEOUT: Duration = Duration::from_secs(20);

impl Call {
    /// Passes an input to the conversation and executes all resulting outputs.
    pub(super) fn handle_input(&mut self, now: Instant, input: Input) {
        self.inputs.push_back(input);
        self.drain_inputs(now);
    }

    /// Passes the queued inputs to the conversation. Nothing that [`Call::apply_output`] calls may
    /// call this method: it must queue inputs, and this loop handles them.
    pub(super) fn drain_inputs(&mut self, now: Instant) {
        while let Some(input) = self.inputs.pop_front() {
            // What is reported after the end has the time of the end.
            if self.ended_at.is_some() && !usage::is_report(&input) {
                continue;
            }
            let at = self.conversation_time(self.ended_at.unwrap_or(now));
            let mut traced = self.trace.is_some().then(|| (input.clone(), Vec::new()));
            self.conversation.handle(input, at);
            while let Some(output) = self.conversation.poll() {
                if let Some((_, out)) = &mut traced {
                    out.push(output.clone());
                }
                self.apply_output(now, output);
            }
            if let (Some(trace), Some((input, out))) = (&mut self.trace, traced) {
                trace.record_step(at, input, out);
            }
            if let Some(turn_detector) = self.audio_input.turn_detector()
                && !self.conversation.awaits_turn_probability()
            {
                turn_detector.cancel();
            }
        }
    }

    fn apply_output(&mut self, now: Instant, output: Output) {
        match output {
            Output::Emit(event) => self.emit_event(now, event),
            Output::RequestLlm(request) => {
                if self.answers_some_utterances() && request.generation.index == 0 {
                    let text = self.last_user_text.clone();
                    self.check_guardrails(&text);
                }
                self.start_generation(request);
            }
            Output::CancelLlm(generation) => {
                self.generations.retain(|a| a.generation != generation)
            }
            Output::Synthesize(request) => self.synthesize(now, request),
            Output::Play(segment) => self.play(now, segment),
            Output::Duck => self.audio_output.playout.duck(),
            Output::Unduck => self.audio_output.playout.unduck(),
            Output::Hold => {
                if let Some((segment, position)) = self.audio_output.playout.hold() {
                    self.inputs.push_back(Input::Playout {
                        segment,
                        event: PlayoutEvent::Progress(position),
                    });
                }
                self.update_avatar_state(None, Some(true));
            }
            Output::Resume => {
                self.audio_output.playout.resume();
                self.update_avatar_state(None, Some(false));
            }
            Output::Cancel(epoch) => {
                self.audio_output.playout.cancel(epoch);
                self.audio_output.cancel_epoch(epoch);
                for tts in self.tts.iter().chain(&self.tts_fallback) {
                    tts.cancel_reply(epoch.0.into());
                }
                self.generations.retain(|a| a.generation.epoch != epoch);
                self.prune_phones();
                self.update_avatar_state(None, Some(false));
            }
            Output::Discard(segment) => {
                self.audio_output.playout.discard(segment);
                self.audio_output.end_synthesis(segment);
                self.prune_phones();
            }
            Output::RunTool { call, id, name, arguments } => {
                self.run_tool(now, call, id, &name, arguments)
            }
            Output::RequestTurnProbability(speech_segment) => {
                self.request_turn_probability(speech_segment)
            }
            Output::Explain(_) => {}
            Output::CommandResult { id, outcome: answer } => self.reply_to_command(now, id, answer),
            Output::End(_) => {
                self.ended_at = Some(now);
                self.add_tts_connections();
                self.queue_usage_report(now);
                // The duration of a hosted STT's connection is billed.
                self.audio_input.end_call();
                // Nor is a connection of a hosted TTS needed: the rest of the audio is here.
                self.audio_output.cancel_syntheses();
                (self.tts, self.tts_fallback) = (None, None);
                // Sessions with tool servers end with the call, not with its last packet. The
                // runtime's threads close them.
                self.tool_listing = Handle::noop();
                let brought = std::mem::take(&mut self.server_tools);
                self.context.runtime.spawn(async move { drop(brought) });
            }
        }
    }

    /// Drops the phones of segments whose audio is gone.
    pub(super) fn prune_phones(&mut self) {
        if let Some(avatar) = &mut self.avatar {
            avatar.animator.retain_segments(|segment| self.audio_output.playout.contains(segment));
        }
    }

    fn emit_event(&mut self, now: Instant, event: EventEnvelope) {
        match &event.event {
            Event::AgentState { state } => self.update_avatar_state(Some(*state), None),
            Event::UserStartedSpeaking => self.set_user_speaking(true),
            Event::UserStoppedSpeaking => self.set_user_speaking(false),
            // What is not for the agent is not checked: the response of a guardrail would be an
            // answer to it.
            Event::UtteranceCommitted { text, .. } if self.answers_some_utterances() => {
                text.clone_into(&mut self.last_user_text);
            }
            Event::UtteranceCommitted { text, .. } => self.check_guardrails(text),
            Event::Error { stage, reason } => {
                tracing::warn!(
                    conversation = %self.config.id,
                    %reason,
                    "{} failed",
                    stage.display_name()
                );
            }
            _ => {}
        }
        self.context.latencies.observe(&event.event);
        self.send_event_to_client(now, &event);
        self.context.event_sink.record(self.config.id, event);
    }

    fn update_avatar_state(&mut self, state: Option<AgentState>, held: Option<bool>) {
        if let Some(avatar) = &mut self.avatar {
            avatar.set_state(state, held);
        }
    }

    fn set_user_speaking(&mut self, speaks: bool) {
        if let Some(avatar) = &mut self.avatar {
            avatar.animator.set_user_speaking(speaks);
        }
    }

    fn reply_to_command(
        &mut self,
        now: Instant,
        id: conversation::input::CommandId,
        answer: CommandOutcome,
    ) {
        let Some(at) = self.pending_replies.iter().position(|(waiting, _)| *waiting == id) else {
            return;
        };
        match self.pending_replies.swap_remove(at).1 {
            ReplyTarget::Api(reply) => {
                let answer = match answer {
                    CommandOutcome::Rejected(why) => Err(CommandError::Rejected(why)),
                    taken => Ok(taken),
                };
                // The requester may have stopped waiting.
                let _ = reply.send(answer);
            }
            ReplyTarget::Client(origin) => self.reply_to_client(now, origin, answer),
            ReplyTarget::Rpc(request) => self.answer_rpc(now, request, answer),
        }
    }

    /// Requests the probability that the user's turn is over. Without an answer, the turn ends
    /// after the shorter delay.
    fn request_turn_probability(&mut self, speech_segment: SpeechSegmentId) {
        let Some(turn_detector) = self.audio_input.turn_detector() else { return };
        let answer = turn_answer_sink(&self.stage_events);
        if let Some((number, p)) =
            turn_detector.request(speech_segment, self.conversation.open_turn(), answer)
        {
            // Sent through the inbox, as an answer of the model would be.
            self.stage_events.send(StageEvent::TurnProbability(number, p));
        }
    }

    /// The user may have finished: asks the turn model in advance.
    pub(super) fn prefetch_turn_probability(&mut self) {
        if let Some(turn_detector) =
            self.audio_input.turn_detector().filter(|_| self.config.spec.turn_model)
        {
            turn_detector
                .prefetch(self.conversation.open_turn(), turn_answer_sink(&self.stage_events));
        }
    }

    fn start_generation(&mut self, request: LlmRequest) {
        let model =
            self.llm_fallback.as_ref().filter(|_| request.use_fallback).unwrap_or(&self.llm);
        let tools = if request.tools_allowed {
            let rule = |t: &Tool| {
                let rule = self.config.guardrails.iter().find(|rule| rule.key == t.name);
                rule.filter(|_| t.backend == ToolBackend::Moderation)
                    .map(|rule| rule.prompt.clone())
            };
            let seen = |t: &Tool| models::llm::Tool {
                name: t.name.clone(),
                description: t.description.clone(),
                parameters: t.parameters.clone(),
                rule: rule(t),
            };
            self.available_tools().map(seen).collect()
        } else {
            Vec::new()
        };
        let mut question = models::llm::Request {
            prompt: self.config.system_prompt.clone(),
            history: request.history,
            snippets: Vec::new(),
            tools,
            model: String::new(),
        };
        let shows_expressions = self.config.offers_expressions && self.avatar.is_some();
        if shows_expressions && model.follows_directions() {
            llm::offer_expressions(&mut question);
        }
        if request.may_stay_silent {
            llm::offer_silence(&mut question);
        }
        let source = self.config.knowledge.clone();
        self.generations.push(llm::start_generation(
            &self.context.runtime,
            self.config.id,
            model.clone(),
            source,
            question,
            request.generation,
            self.stage_events.clone(),
        ));
    }

    /// A segment may play. The face gets time for its expression.
    fn play(&mut self, now: Instant, segment: SegmentId) {
        let time = self.conversation_time(now);
        if let Some(avatar) = &mut self.avatar {
            let samples = avatar.lead_in(segment, time).as_millis() as usize * 48;
            self.audio_output.playout.set_lead_in(segment, samples);
        }
        self.audio_output.playout.play(segment);
    }

    fn synthesize(&mut self, now: Instant, request: TtsRequest) {
        let fallback = self.tts_fallback.as_ref().filter(|_| request.use_fallback);
        let fallback = fallback.map(|tts| (tts, &self.fallback_voice_id));
        let Some((engine, voice)) = fallback.or(self.tts.as_ref().map(|tts| (tts, &self.voice_id)))
        else {
            return;
        };
        let time = self.conversation_time(now);
        if let Some(avatar) = &mut self.avatar {
            avatar.announce_segment(&request, time);
        }
        let sounds = |p: &Pronunciation| (p.word.clone(), p.pronunciation.clone());
        let words = models::tts::Request {
            text: request.text,
            voice: voice.clone(),
            avatar_voice: self.avatar_voice.clone(),
            reply: request.epoch.0.into(),
            language: None,
            pronunciation: self.config.tts.custom_pronunciation.iter().map(sounds).collect(),
        };
        let (stage_events, segment) = (self.stage_events.clone(), request.segment);
        let lips = self.avatar.is_some();
        let recorded = self.config.spec.record_words;
        let sink = tts::synthesis_sink(lips, recorded, move |event| {
            stage_events.send(StageEvent::Tts(segment, event))
        });
        match engine.speak(words, sink) {
            Ok(handle) => self.audio_output.add_synthesis(segment, request.epoch, handle),
            Err(error) => {
                self.inputs
                    .push_back(Input::Tts { segment, event: TtsEvent::Failed(error.to_string()) });
            }
        }
    }

    /// The tools that the model may call now.
    fn available_tools(&self) -> impl Iterator<Item = &Tool> {
        let open = |tool: &&Tool| {
            !matches!(
                &tool.backend,
                ToolBackend::Remote(remote) if !remote.0.is_open()
            )
        };
        self.config.tools.iter().chain(&self.server_tools).filter(open)
    }

    /// Lists the tools of the agent's tool servers. This runs in parallel to the greeting, and
    /// nothing waits for it.
    pub(super) fn list_server_tools(&mut self) {
        let Some(servers) = &self.config.tool_servers else { return };
        let stage_events = self.stage_events.clone();
        let listing = servers
            .list_tools(Box::new(move |result| stage_events.send(StageEvent::ToolList(result))));
        let task = self.context.runtime.spawn(listing);
        self.tool_listing = Handle::new(move || task.abort());
    }

    /// Adds the tools of a server. If several tools share a name, the agent's own tool counts, then
    /// the last one to arrive.
    pub(super) fn add_server_tools(&mut self, now: Instant, mut tools: Vec<Tool>) {
        tools.retain(|tool| self.config.tools.iter().all(|own| own.name != tool.name));
        let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let known = std::mem::take(&mut self.server_tools);
        let (replaced, others): (Vec<Tool>, Vec<Tool>) =
            known.into_iter().partition(|known| names.contains(&known.name));
        self.server_tools = others;
        self.server_tools.extend(tools);
        // They may be the last of their session, which the runtime's threads close.
        self.context.runtime.spawn(async move { drop(replaced) });
        if !names.is_empty() {
            self.handle_input(now, Input::ToolsAdded(names));
        }
    }

    fn run_tool(
        &mut self,
        now: Instant,
        call: ToolCallId,
        id: String,
        name: &str,
        arguments: Value,
    ) {
        let Some(tool) = self.available_tools().find(|t| t.name == name).cloned() else {
            return self
                .inputs
                .push_back(Input::ToolResult { call, result: Err("unknown tool".into()) });
        };
        if tool.backend == ToolBackend::Client {
            // The event that reports the start of the tool call is also the request to the client.
            self.client_tools.push(ClientTool { call, id, deadline: now + CLIENT_TOOL_TIMEOUT });
            return;
        }
        let (client, stage_events) = (self.context.http_client.clone(), self.stage_events.clone());
        let span = call_span(self.config.id);
        if let ToolBackend::Remote(remote) = &tool.backend {
            let running = remote.0.call(arguments);
            let run = async move { stage_events.send(StageEvent::ToolResult(call, running.await)) };
            self.context.runtime.spawn(run.instrument(span));
            return;
        }
        if tool.backend == ToolBackend::Moderation {
            let Some(guardrail) = self.config.guardrails.iter().position(|rule| rule.key == name)
            else {
                return;
            };
            let (llm, user_text) = (Arc::clone(&self.llm), self.last_user_text.clone());
            let rule = self.config.guardrails[guardrail].clone();
            let moderation = async move {
                let verdict = guardrails::moderate(&llm, user_text.clone()).await;
                let instruction = guardrails::moderation_result(&rule, &verdict);
                stage_events.send(StageEvent::Guardrail(GuardrailHit {
                    index: guardrail,
                    user_text,
                    verdict: Some(verdict),
                }));
                stage_events.send(StageEvent::ToolResult(call, Ok(instruction)));
            };
            self.context.runtime.spawn(moderation.instrument(span));
            return;
        }
        let run = async move {
            // `tools::run` has its own timeout.
            let result = tools::run(&client, &tool, arguments).await;
            stage_events.send(StageEvent::ToolResult(call, result));
        };
        self.context.runtime.spawn(run.instrument(span));
    }
}

/// Makes the sink for the turn model's answer, by the number of the request.
fn turn_answer_sink(stage_events: &Sink<StageEvent>) -> impl FnOnce(u64) -> Sink<f32> + use<> {
    let stage_events = stage_events.clone();
    move |number| Sink::new(move |p| stage_events.send(StageEvent::TurnProbability(number, p)))
}
