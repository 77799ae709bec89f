//! Advances from one event to the next. Each time, the next events are derived from the whole
//! record; there is no queue.

use serde_json::{Value, json};

use super::case::{Case, Micros, SECOND};
use super::record::CallRecord;
use super::user_input::UserEvent;

/// Silence of a provider that is a failure: longer than 5 s, so an event at exactly 5 s still
/// counts.
const PROVIDER_TIMEOUT: Micros = 5 * SECOND + 1;
/// A tool without a result for more than 20 s has failed.
const TOOL_TIMEOUT: Micros = 20 * SECOND + 1;
/// More steps than any reasonable call has.
const MAX_CALL_STEPS: usize = 50_000;
const DUCK_DELAY: Micros = SECOND * 6 / 100;

/// The next event. Among events of the same time, the order of this list applies. Deadlines come
/// first, then events of providers (in the order of their requests), then the user's speech, then
/// commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NextEvent {
    LlmTimeout(usize),
    TtsTimeout(usize, usize, usize),
    ToolTimeout(usize),
    Duck(usize),
    Hold(usize),
    /// The echo warm-up has ended: what it postponed becomes possible.
    WarmupEnd,
    TurnEnd,
    Resume,
    ToolDelay(usize),
    /// A TTS request is allowed now.
    TtsAllowed,
    Warning,
    Limit,
    Idle,
    Provider(u64, ProviderEvent),
    User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProviderEvent {
    FirstToken(usize),
    WholeText(usize),
    FirstAudio(usize, usize, usize),
    PlayoutEnd(usize),
    ToolResult(usize),
}

/// The lines of this call; the summary is the last one.
pub(crate) fn predict(case: &Case) -> Vec<(Micros, Value)> {
    let mut record = CallRecord::new(case);
    record.start();
    let mut steps = 0;
    while !record.over {
        let Some((at, next)) = record.next_event().filter(|(at, _)| *at <= case.until) else {
            break;
        };
        steps += 1;
        assert!(steps < MAX_CALL_STEPS, "{next:?} again and again at {at}");
        record.now = record.now.max(at);
        record.apply_event(next);
        record.settle();
    }
    if !record.over {
        record.now = case.until;
    }
    let turns = record.turn_times();
    let history = record.history.clone();
    record.emit("summary", json!({"history": history, "turns": turns}));
    record.lines
}

impl CallRecord<'_> {
    /// Everything that follows at this time: deadlines first, then possible actions.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MAX_CALL_STEPS {
            if self.failure_limit_reached && !self.over {
                let reason = if self.ending { "max_call_duration" } else { "error" };
                self.end_call(reason, Value::Null);
            }
            if self.over {
                return;
            }
            if let Some((_, next)) =
                self.due_events().into_iter().filter(|(at, _)| *at <= self.now).min()
            {
                self.apply_event(next);
            } else if !self.settle_once() {
                return;
            }
        }
        panic!("the machine does not settle at {}", self.now);
    }

    fn next_event(&self) -> Option<(Micros, NextEvent)> {
        let mut all = self.due_events();
        for (at, order, provider) in self.provider_events() {
            all.push((at, NextEvent::Provider(order, provider)));
        }
        if let Some((at, _)) = self.user_input.events.get(self.user_input.consumed) {
            all.push((*at, NextEvent::User));
        }
        all.into_iter().map(|(at, next)| (at.max(self.now), next)).min()
    }

    /// All events that the rules themselves cause, with their times.
    fn due_events(&self) -> Vec<(Micros, NextEvent)> {
        let mut due: Vec<(Option<Micros>, NextEvent)> = vec![
            (self.limit_at(), NextEvent::Limit),
            (self.echo_warmup_end(), NextEvent::WarmupEnd),
            (self.open_turn().ends_at(self.case), NextEvent::TurnEnd),
            (self.resume_at(), NextEvent::Resume),
            (self.warning_at(), NextEvent::Warning),
            (self.idle_at(), NextEvent::Idle),
            (self.next_tts_at(), NextEvent::TtsAllowed),
        ];
        if let Some(n) = self.user_input.active_segment() {
            // The echo warm-up postpones what falls into it.
            let judged_at = |at: Micros| self.echo_warmup_end().map_or(at, |end| at.max(end));
            if !self.duck_judged.contains(&n) {
                let at = (self.user_input.speech_segments[n].from + DUCK_DELAY)
                    .max(self.user_input.start_reported_at(n));
                due.push((Some(judged_at(at)), NextEvent::Duck(n)));
            }
            if !self.hold_judged.contains(&n) {
                due.push((self.user_input.min_duration_at(n).map(judged_at), NextEvent::Hold(n)));
            }
        }
        for (n, tool) in self.tools.iter().enumerate().filter(|(_, tool)| tool.result_at.is_none())
        {
            due.push((Some(tool.started.0 + TOOL_TIMEOUT), NextEvent::ToolTimeout(n)));
            let script = tool.script_index.map(|script| &self.case.tools[script]);
            if let Some(script) =
                script.filter(|script| !tool.delay_judged && script.on_delay.is_some())
            {
                due.push((Some(tool.started.0 + script.delay), NextEvent::ToolDelay(n)));
            }
        }
        for (r, reply) in
            self.replies.iter().enumerate().filter(|(_, reply)| reply.ended_at.is_none())
        {
            if let Some(step) =
                reply.generations.last().filter(|step| !step.done && step.first_token_at.is_none())
            {
                due.push((Some(step.requested.0 + PROVIDER_TIMEOUT), NextEvent::LlmTimeout(r)));
            }
            for (u, p, segment) in reply.awaited_segments() {
                due.push((
                    segment.requested.map(|(requested_at, _)| requested_at + PROVIDER_TIMEOUT),
                    NextEvent::TtsTimeout(r, u, p),
                ));
            }
        }
        due.into_iter().filter_map(|(at, next)| Some((at?, next))).collect()
    }

    /// All events of providers and playout, with the order of their requests.
    fn provider_events(&self) -> Vec<(Micros, u64, ProviderEvent)> {
        let mut all = Vec::new();
        for (n, tool) in self.tools.iter().enumerate().filter(|(_, tool)| tool.result_at.is_none())
        {
            if let Some(script) = tool.script_index.map(|script| &self.case.tools[script]) {
                all.push((
                    tool.started.0 + script.duration,
                    tool.started.1,
                    ProviderEvent::ToolResult(n),
                ));
            }
        }
        for (r, reply) in
            self.replies.iter().enumerate().filter(|(_, reply)| reply.ended_at.is_none())
        {
            if let Some(step) = reply.generations.last().filter(|step| !step.done) {
                let (requested_at, order) = step.requested;
                let (first, whole) = self.llm_times(step.script_index);
                all.push(match step.first_token_at {
                    None => (requested_at + first, order, ProviderEvent::FirstToken(r)),
                    Some(_) => {
                        (requested_at + whole.max(first), order, ProviderEvent::WholeText(r))
                    }
                });
            }
            for (u, p, segment) in reply.awaited_segments() {
                if let Some((requested_at, order)) = segment.requested {
                    all.push((
                        requested_at + reply.utterances[u].ttfb,
                        order,
                        ProviderEvent::FirstAudio(r, u, p),
                    ));
                }
            }
            if let Some((position, segment)) = self.position(r).zip(reply.sounding_segment())
                && !reply.is_held()
            {
                all.push((
                    self.now + segment.length - position,
                    segment.running_since,
                    ProviderEvent::PlayoutEnd(r),
                ));
            }
        }
        all
    }

    fn apply_event(&mut self, next: NextEvent) {
        match next {
            NextEvent::Limit => self.limit_reached(),
            NextEvent::TurnEnd => self.end_turn(),
            NextEvent::Resume => self.resume_due(),
            NextEvent::Duck(n) => self.duck_due(n),
            NextEvent::Hold(n) => self.hold_due(n),
            NextEvent::Warning => self.warning_due(),
            NextEvent::Idle => self.idle_due(),
            NextEvent::TtsAllowed | NextEvent::WarmupEnd => {}
            NextEvent::ToolTimeout(n) => self.tool_ended(n, Err("timeout".into())),
            NextEvent::ToolDelay(n) => self.tool_delay_due(n),
            NextEvent::LlmTimeout(r) => self.llm_failed(r, "timeout"),
            NextEvent::TtsTimeout(r, u, p) => self.tts_failed(r, u, p, "timeout"),
            NextEvent::Provider(_, ProviderEvent::FirstToken(r)) => self.first_token_received(r),
            NextEvent::Provider(_, ProviderEvent::WholeText(r)) => self.whole_text_received(r),
            NextEvent::Provider(_, ProviderEvent::FirstAudio(r, u, p)) => {
                self.first_audio_received(r, u, p)
            }
            NextEvent::Provider(_, ProviderEvent::PlayoutEnd(r)) => self.finish_segment(r),
            NextEvent::Provider(_, ProviderEvent::ToolResult(n)) => {
                let result = self.tools[n]
                    .script_index
                    .map(|script| self.case.tools[script].returns.clone());
                self.tool_ended(n, result.unwrap_or(Err(String::new())));
            }
            NextEvent::User => {
                let (_, event) = self.user_input.events[self.user_input.consumed].clone();
                self.user_input.consumed += 1;
                match event {
                    UserEvent::Start(_) => self.user_started(),
                    UserEvent::Stop(n) => self.user_stopped(n),
                    UserEvent::Interim(_) => self.interim_received(),
                    UserEvent::Final(item) => self.final_received(item),
                    UserEvent::Hint(hint) => self.hint_received(hint),
                    UserEvent::Action(action) => self.apply_action(action.kind),
                }
            }
        }
    }
}
