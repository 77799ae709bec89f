//! What the conversation asks for is done, and what models and tools answer is told to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::call_config::{Pronunciation, Tool, ToolBackend};
use conversation::engine::CommandError;
use conversation::event::{AgentState, Event as Fact, EventEnvelope, Stage, TriggeredGuardrail};
use conversation::input::{Input, PlayoutEvent, SegmentId, SpeechSegmentId, ToolCallId, TtsEvent};
use conversation::output::{CommandOutcome, LlmRequest, Output, TtsRequest};
use models::{Handle, Sink};
use serde_json::Value;
use tracing::Instrument as _;

use super::talk::ClientTool;
use super::{Node, Waiting};
use crate::graph::{Guarded, News};
use crate::speak::tts;
use crate::think::{guardrails, llm, span, tools};

/// A tool in the client that has not answered by then has failed.
const CLIENT_TOOL: Duration = Duration::from_secs(20);

/// Checks of guardrails that may be out at once.
const CHECKS: usize = 4;

impl Node {
    /// Tells the conversation what happened, and does all that it asks for.
    pub(super) fn feed(&mut self, now: Instant, input: Input) {
        self.inputs.push_back(input);
        self.settle(now);
    }

    /// Gives the conversation what is queued. Nothing that [`Node::act`] calls may call this: it queues, and the loop here goes on.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(input) = self.inputs.pop_front() {
            if self.ended.is_some() {
                self.inputs.clear();
                return;
            }
            let at = self.time(now);
            let mut traced = self.trace.is_some().then(|| (input.clone(), Vec::new()));
            self.conversation.handle(input, at);
            while let Some(output) = self.conversation.poll() {
                if let Some((_, out)) = &mut traced {
                    out.push(output.clone());
                }
                self.act(now, output);
            }
            if let (Some(trace), Some((input, out))) = (&mut self.trace, traced) {
                trace.step(at, input, out);
            }
            if let Some(asker) = self.hearing.asker()
                && !self.conversation.awaits_turn_probability()
            {
                asker.withdraw();
            }
        }
    }

    fn act(&mut self, now: Instant, output: Output) {
        match output {
            Output::Emit(fact) => self.tell(now, fact),
            Output::RequestLlm(request) => self.ask(request),
            Output::CancelLlm(step) => self.asked.retain(|a| a.step != step),
            Output::Synthesize(request) => self.synthesize(request),
            Output::Play(piece) => self.speaking.playout.play(piece),
            Output::Duck => self.speaking.playout.duck(),
            Output::Unduck => self.speaking.playout.unduck(),
            Output::Hold => {
                if let Some((piece, position)) = self.speaking.playout.hold() {
                    self.inputs.push_back(Input::Playout {
                        segment: piece,
                        event: PlayoutEvent::Progress(position),
                    });
                }
                self.pose(None, Some(true));
            }
            Output::Resume => {
                self.speaking.playout.resume();
                self.pose(None, Some(false));
            }
            Output::Cancel(epoch) => {
                self.speaking.playout.cancel(epoch);
                self.speaking.cancelled(epoch);
                self.asked.retain(|a| a.step.epoch != epoch);
                self.keep_phones();
                self.pose(None, Some(false));
            }
            Output::Discard(piece) => {
                self.speaking.playout.discard(piece);
                self.speaking.made(piece);
                self.keep_phones();
            }
            Output::RunTool { call, id, name, arguments } => self.run_tool(now, call, id, &name, arguments),
            Output::RequestTurnProbability(stretch) => self.ask_turn(stretch),
            Output::Explain(_) => {}
            Output::CommandResult { id, outcome: answer } => self.answer(now, id, answer),
            Output::End(_) => {
                self.ended = Some(now);
                // The sessions with servers of tools end with the call, not with its last packet. The net pool takes them down.
                self.servers = Handle::done();
                let brought = std::mem::take(&mut self.brought);
                self.shared.net.spawn(async move { drop(brought) });
            }
        }
    }

    /// Phones are of no use longer than their sound.
    pub(super) fn keep_phones(&mut self) {
        if let Some(showing) = &mut self.showing {
            showing.face.keep(|piece| self.speaking.playout.has(piece));
        }
    }

    fn tell(&mut self, now: Instant, fact: EventEnvelope) {
        match &fact.event {
            Fact::AgentState { state } => self.pose(Some(*state), None),
            Fact::UserStartedSpeaking => self.nod(true),
            Fact::UserStoppedSpeaking => self.nod(false),
            Fact::UtteranceCommitted { text } => self.guard(text),
            Fact::Error { stage, reason } => {
                tracing::warn!(conversation = %self.call.id, %reason, "the {} failed", stage.display_name());
            }
            _ => {}
        }
        self.shared.latencies.note(&fact.event);
        self.tell_client(now, &fact);
        self.shared.ledger.record(self.call.id, fact);
    }

    /// Checks what the user said against the agent's guardrails, beside the reply.
    fn guard(&mut self, said: &str) {
        if self.call.guardrails.is_empty() {
            return;
        }
        said.clone_into(&mut self.said);
        let (net, news, call) = (&self.shared.net, self.news.clone(), self.call.id);
        // A check that is still out goes on: what it finds counts even if the user has gone on talking.
        self.checks.extend(guardrails::check(net, call, &self.llm, &self.call.guardrails, said, news));
        let excess = self.checks.len().saturating_sub(CHECKS);
        self.checks.drain(..excess);
    }

    /// A guardrail fired: it is on record, and its words take the reply's place.
    fn guarded(&mut self, now: Instant, Guarded { guardrail, said, verdict }: Guarded) {
        let Some(rule) = self.call.guardrails.get(guardrail) else { return };
        let say = rule.response_message.clone();
        let fact = Fact::GuardrailTriggered(Box::new(TriggeredGuardrail {
            key: rule.key.clone(),
            category: rule.category.clone(),
            content: said,
            response_message: say.clone(),
            verdict,
            callback_url: rule.callback_url.clone(),
        }));
        self.inputs.push_back(Input::ExternalEvent(fact));
        if let Some(say) = say {
            self.inputs.push_back(Input::GuardrailTriggered { response: say });
        }
        self.settle(now);
    }

    fn pose(&mut self, state: Option<AgentState>, held: Option<bool>) {
        if let Some(showing) = &mut self.showing {
            showing.state = state.unwrap_or(showing.state);
            showing.held = held.unwrap_or(showing.held);
            showing.face.set_state(showing.state, showing.held);
        }
    }

    fn nod(&mut self, speaks: bool) {
        if let Some(showing) = &mut self.showing {
            showing.face.set_user_speaks(speaks);
        }
    }

    fn answer(&mut self, now: Instant, id: conversation::input::CommandId, answer: CommandOutcome) {
        let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) else { return };
        match self.waiting.swap_remove(at).1 {
            Waiting::Host(reply) => {
                let answer = match answer {
                    CommandOutcome::Rejected(why) => Err(CommandError::Rejected(why)),
                    taken => Ok(taken),
                };
                // Whoever asked may have gone meanwhile.
                let _ = reply.send(answer);
            }
            Waiting::Client(origin) => self.answer_client(now, origin, answer),
        }
    }

    /// Where nobody answers, the turn ends after the shorter wait.
    fn ask_turn(&mut self, stretch: SpeechSegmentId) {
        let Some(asker) = self.hearing.asker() else { return };
        let answer = answers(&self.news);
        if let Some((number, p)) = asker.ask(stretch, self.conversation.open_turn(), answer) {
            // By the way that it would have come.
            self.news.send(News::Turn(number, p));
        }
    }

    /// The user may have finished: the turn model begins to think about it.
    pub(super) fn ask_turn_ahead(&mut self) {
        if let Some(asker) = self.hearing.asker().filter(|_| self.call.spec.turn_model) {
            asker.ahead(self.conversation.open_turn(), answers(&self.news));
        }
    }

    fn ask(&mut self, request: LlmRequest) {
        let model = self.llm_fallback.as_ref().filter(|_| request.use_fallback).unwrap_or(&self.llm);
        let tools = if request.tools_allowed {
            let rule = |t: &Tool| {
                let rule = self.call.guardrails.iter().find(|rule| rule.key == t.name);
                rule.filter(|_| t.backend == ToolBackend::Moderation).map(|rule| rule.prompt.clone())
            };
            let seen = |t: &Tool| models::llm::Tool {
                name: t.name.clone(),
                description: t.description.clone(),
                parameters: t.parameters.clone(),
                rule: rule(t),
            };
            self.tools().map(seen).collect()
        } else {
            Vec::new()
        };
        let question = models::llm::Request {
            prompt: self.call.system_prompt.clone(),
            history: request.history,
            snippets: Vec::new(),
            tools,
            model: String::new(),
        };
        let source = self.call.knowledge.clone();
        self.asked.push(llm::ask(
            &self.shared.net,
            self.call.id,
            model.clone(),
            source,
            question,
            request.generation,
            self.news.clone(),
        ));
    }

    fn synthesize(&mut self, request: TtsRequest) {
        let (engine, voice) = match self.tts_fallback.as_ref().filter(|_| request.use_fallback) {
            Some(fallback) => (fallback, &self.fallback_voice),
            None => (&self.tts, &self.voice),
        };
        let sounds = |p: &Pronunciation| (p.word.clone(), p.pronunciation.clone());
        let words = models::tts::Request {
            text: request.text,
            voice: voice.clone(),
            pronunciation: self.call.tts.custom_pronunciation.iter().map(sounds).collect(),
        };
        let (news, piece) = (self.news.clone(), request.segment);
        let lips = self.showing.is_some();
        match engine.speak(words, tts::sink(lips, move |event| news.send(News::Tts(piece, event)))) {
            Ok(handle) => self.speaking.make(piece, request.epoch, handle),
            Err(error) => {
                self.inputs
                    .push_back(Input::Tts { segment: piece, event: TtsEvent::Failed(error.to_string()) });
            }
        }
    }

    /// What the model may call now.
    fn tools(&self) -> impl Iterator<Item = &Tool> {
        let open =
            |tool: &&Tool| !matches!(&tool.backend, ToolBackend::Remote(remote) if !remote.0.is_open());
        self.call.tools.iter().chain(&self.brought).filter(open)
    }

    /// Asks the agent's servers of tools, beside the greeting: nobody waits for them.
    pub(super) fn ask_servers(&mut self) {
        let Some(servers) = &self.call.tool_servers else { return };
        let news = self.news.clone();
        let task =
            self.shared.net.spawn(servers.list_tools(Box::new(move |told| news.send(News::Tools(told)))));
        self.servers = Handle::new(move || task.abort());
    }

    /// A server has brought its tools. Of tools of one name the first counts: the agent's own, then whichever came first.
    fn bring(&mut self, now: Instant, tools: Vec<Tool>) {
        let first = self.brought.len();
        for tool in tools {
            if self.tools().all(|known| known.name != tool.name) {
                self.brought.push(tool);
            }
        }
        let names: Vec<String> = self.brought[first..].iter().map(|tool| tool.name.clone()).collect();
        if !names.is_empty() {
            self.feed(now, Input::ToolsAdded(names));
        }
    }

    fn run_tool(&mut self, now: Instant, call: ToolCallId, id: String, name: &str, arguments: Value) {
        let Some(tool) = self.tools().find(|t| t.name == name).cloned() else {
            return self.inputs.push_back(Input::ToolResult { call, result: Err("unknown tool".into()) });
        };
        if tool.backend == ToolBackend::Client {
            // The fact that it was started is its request.
            self.client_tools.push(ClientTool { call, id, until: now + CLIENT_TOOL });
            return;
        }
        let (client, news) = (self.shared.client.clone(), self.news.clone());
        let span = span(self.call.id);
        if let ToolBackend::Remote(remote) = &tool.backend {
            let running = remote.0.call(arguments);
            let run = async move { news.send(News::Tool(call, running.await)) };
            self.shared.net.spawn(run.instrument(span));
            return;
        }
        if tool.backend == ToolBackend::Moderation {
            let Some(guardrail) = self.call.guardrails.iter().position(|rule| rule.key == name) else {
                return;
            };
            let (llm, said) = (Arc::clone(&self.llm), self.said.clone());
            let rule = self.call.guardrails[guardrail].clone();
            let judge = async move {
                let verdict = guardrails::moderate(&llm, said.clone()).await;
                let told = guardrails::told(&rule, &verdict);
                news.send(News::Guarded(Guarded { guardrail, said, verdict: Some(verdict) }));
                news.send(News::Tool(call, Ok(told)));
            };
            self.shared.net.spawn(judge.instrument(span));
            return;
        }
        let run = async move {
            // It has a time-out of its own.
            let result = tools::run(&client, &tool, arguments).await;
            news.send(News::Tool(call, result));
        };
        self.shared.net.spawn(run.instrument(span));
    }

    /// News of a model or a tool.
    pub(crate) fn news(&mut self, now: Instant, news: News) {
        if self.origin.is_none() || self.ended.is_some() {
            return;
        }
        match news {
            News::Stt(event) => self.understood(now, event),
            News::Turn(number, p) => {
                if let Some(stretch) = self.hearing.asker().and_then(|asker| asker.answered(number, p)) {
                    self.feed(now, Input::TurnProbability { speech_segment: stretch, probability: p });
                }
            }
            News::Snippets(items) => self.feed(now, Input::ExternalEvent(Fact::Snippets { items })),
            News::Llm(step, event) => {
                // A question that was cancelled is not heard any more, whatever was on its way.
                if !self.asked.iter().any(|a| a.step == step) {
                    return;
                }
                let (event, last) = llm::input(event);
                if last {
                    self.asked.retain(|a| a.step != step);
                }
                self.feed(now, Input::Llm { generation: step, event });
            }
            News::Tts(piece, event) => self.spoken(now, piece, event),
            News::Tools(Ok(tools)) => self.bring(now, tools),
            News::Tools(Err(text)) => self.feed(now, Input::ExternalEvent(Fact::Warning { text })),
            News::Tool(call, result) => self.feed(now, Input::ToolResult { call, result }),
            News::Guarded(guarded) => self.guarded(now, guarded),
        }
    }

    fn understood(&mut self, now: Instant, event: models::stt::Event) {
        let input = match event {
            models::stt::Event::Interim(text) => {
                Input::Transcript { text, is_final: false, trailing_interim: String::new() }
            }
            models::stt::Event::Final(text) => {
                Input::Transcript { text, is_final: true, trailing_interim: String::new() }
            }
            models::stt::Event::Failed(error) => {
                Input::StageFailed { stage: Stage::Stt, reason: error.to_string() }
            }
            models::stt::Event::Recovered => Input::StageRecovered { stage: Stage::Stt },
        };
        self.feed(now, input);
    }

    fn spoken(&mut self, now: Instant, piece: SegmentId, event: tts::News) {
        if !self.speaking.makes(piece) {
            return;
        }
        let event = match event {
            tts::News::Phones(phones) => {
                if let Some(showing) = &mut self.showing {
                    showing.face.phones(piece, &phones);
                }
                return;
            }
            tts::News::Words(words) => TtsEvent::WordTimestamps(words),
            tts::News::Samples(samples) => {
                self.speaking.playout.push(piece, samples);
                if self.speaking.arrived(piece) != Some(true) {
                    return;
                }
                TtsEvent::FirstAudio
            }
            tts::News::End => {
                self.speaking.made(piece);
                let Some(duration) = self.speaking.playout.complete(piece) else { return };
                TtsEvent::End { duration }
            }
            tts::News::Failed(error) => {
                self.speaking.made(piece);
                self.speaking.playout.discard(piece);
                TtsEvent::Failed(error.to_string())
            }
        };
        self.feed(now, Input::Tts { segment: piece, event });
    }
}

/// Where a question to the turn model is answered.
fn answers(news: &Sink<News>) -> impl FnOnce(u64) -> Sink<f32> + use<> {
    let news = news.clone();
    move |number| Sink::new(move |p| news.send(News::Turn(number, p)))
}
