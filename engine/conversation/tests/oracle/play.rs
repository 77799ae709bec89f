//! From one instant to the next. What will happen is looked for in the whole record each time: nothing is kept in a queue.

use serde_json::{Value, json};

use super::case::{Case, S, Us};
use super::ear::News;
use super::record::Record;

/// Silence of a provider that is a failure: longer than 5 s, so that what comes at that very instant still counts.
const SILENCE: Us = 5 * S + 1;
/// A tool that is out for more than 20 s has failed.
const TOOL_LONGEST: Us = 20 * S + 1;
/// No call of a sensible length has so many instants.
const MOST_STEPS: usize = 50_000;
const DUCK_AFTER: Us = S * 6 / 100;

/// Something that is next. Of one instant the first of this list comes first; what is due comes before what providers do (in the order
/// in which they were asked), that before the user's voice, and commands come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    LlmTimeout(usize),
    TtsTimeout(usize, usize, usize),
    ToolTimeout(usize),
    Duck(usize),
    Hold(usize),
    /// The echo warm-up is over: what it kept back is possible.
    Warm,
    TurnOver,
    Resume,
    Delay(usize),
    /// A voice may be asked now.
    Voice,
    Warning,
    Limit,
    Idle,
    Provider(u64, Provider),
    News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Provider {
    FirstToken(usize),
    Words(usize),
    Sound(usize, usize, usize),
    Played(usize),
    Result(usize),
}

/// The lines of this call, the summary last.
pub(crate) fn predict(case: &Case) -> Vec<(Us, Value)> {
    let mut record = Record::new(case);
    record.begin();
    let mut steps = 0;
    while !record.over {
        let Some((at, next)) = record.next().filter(|(at, _)| *at <= case.until) else { break };
        steps += 1;
        assert!(steps < MOST_STEPS, "{next:?} again and again at {at}");
        record.now = record.now.max(at);
        record.happen(next);
        record.settle();
    }
    if !record.over {
        record.now = case.until;
    }
    let turns = record.turn_times();
    let history = record.history.clone();
    record.tell("summary", json!({"history": history, "turns": turns}));
    record.lines
}

impl Record<'_> {
    /// Everything that follows at this instant: what is due, then what is possible.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MOST_STEPS {
            if self.broken && !self.over {
                let reason = if self.ending { "max_call_duration" } else { "error" };
                self.call_ends(reason, Value::Null);
            }
            if self.over {
                return;
            }
            if let Some((_, next)) = self.due().into_iter().filter(|(at, _)| *at <= self.now).min() {
                self.happen(next);
            } else if !self.settle_once() {
                return;
            }
        }
        panic!("no rest at {}", self.now);
    }

    fn next(&self) -> Option<(Us, Next)> {
        let mut all = self.due();
        for (at, order, provider) in self.providers() {
            all.push((at, Next::Provider(order, provider)));
        }
        if let Some((at, _)) = self.ear.list.get(self.ear.behind) {
            all.push((*at, Next::News));
        }
        all.into_iter().map(|(at, next)| (at.max(self.now), next)).min()
    }

    /// All that the rules themselves make happen, with its time.
    fn due(&self) -> Vec<(Us, Next)> {
        let mut due: Vec<(Option<Us>, Next)> = vec![
            (self.limit_at(), Next::Limit),
            (self.warm_until(), Next::Warm),
            (self.turn().over_at(self.case), Next::TurnOver),
            (self.resume_at(), Next::Resume),
            (self.warning_at(), Next::Warning),
            (self.idle_at(), Next::Idle),
            (self.voice_at(), Next::Voice),
        ];
        if let Some(n) = self.ear.hearing() {
            // The echo warm-up puts off what falls into it.
            let judged_at = |at: Us| self.warm_until().map_or(at, |end| at.max(end));
            if !self.duck_judged.contains(&n) {
                let at = (self.ear.stretches[n].from + DUCK_AFTER).max(self.ear.report(n));
                due.push((Some(judged_at(at)), Next::Duck(n)));
            }
            if !self.hold_judged.contains(&n) {
                due.push((self.ear.long_enough(n).map(judged_at), Next::Hold(n)));
            }
        }
        for (n, tool) in self.tools.iter().enumerate().filter(|(_, tool)| tool.result.is_none()) {
            due.push((Some(tool.started.0 + TOOL_LONGEST), Next::ToolTimeout(n)));
            let script = tool.tool.map(|script| &self.case.tools[script]);
            if let Some(script) = script.filter(|script| !tool.delay_judged && script.on_delay.is_some()) {
                due.push((Some(tool.started.0 + script.delay), Next::Delay(n)));
            }
        }
        for (r, reply) in self.replies.iter().enumerate().filter(|(_, reply)| reply.gone.is_none()) {
            if let Some(step) = reply.steps.last().filter(|step| !step.done && step.first.is_none()) {
                due.push((Some(step.asked.0 + SILENCE), Next::LlmTimeout(r)));
            }
            for (u, p, piece) in reply.awaited() {
                due.push((piece.asked.map(|(asked, _)| asked + SILENCE), Next::TtsTimeout(r, u, p)));
            }
        }
        due.into_iter().filter_map(|(at, next)| Some((at?, next))).collect()
    }

    /// All that providers and playout will do, in which order they were asked.
    fn providers(&self) -> Vec<(Us, u64, Provider)> {
        let mut all = Vec::new();
        for (n, tool) in self.tools.iter().enumerate().filter(|(_, tool)| tool.result.is_none()) {
            if let Some(script) = tool.tool.map(|script| &self.case.tools[script]) {
                all.push((tool.started.0 + script.takes, tool.started.1, Provider::Result(n)));
            }
        }
        for (r, reply) in self.replies.iter().enumerate().filter(|(_, reply)| reply.gone.is_none()) {
            if let Some(step) = reply.steps.last().filter(|step| !step.done) {
                let (asked, order) = step.asked;
                let (first, whole) = self.llm_times(step.answer);
                all.push(match step.first {
                    None => (asked + first, order, Provider::FirstToken(r)),
                    Some(_) => (asked + whole.max(first), order, Provider::Words(r)),
                });
            }
            for (u, p, piece) in reply.awaited() {
                if let Some((asked, order)) = piece.asked {
                    all.push((asked + reply.utterances[u].ttfb, order, Provider::Sound(r, u, p)));
                }
            }
            if let Some((position, piece)) = self.position(r).zip(reply.sounding_piece())
                && !reply.held()
            {
                all.push((self.now + piece.length - position, piece.running_since, Provider::Played(r)));
            }
        }
        all
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Limit => self.limit_reached(),
            Next::TurnOver => self.turn_over(),
            Next::Resume => self.resume_due(),
            Next::Duck(n) => self.duck_due(n),
            Next::Hold(n) => self.hold_due(n),
            Next::Warning => self.warning_due(),
            Next::Idle => self.idle_due(),
            Next::Voice | Next::Warm => {}
            Next::ToolTimeout(n) => self.tool_ended(n, Err("timeout".into())),
            Next::Delay(n) => self.tool_delayed(n),
            Next::LlmTimeout(r) => self.llm_failed(r, "timeout"),
            Next::TtsTimeout(r, u, p) => self.tts_failed(r, u, p, "timeout"),
            Next::Provider(_, Provider::FirstToken(r)) => self.first_token(r),
            Next::Provider(_, Provider::Words(r)) => self.words_came(r),
            Next::Provider(_, Provider::Sound(r, u, p)) => self.sound_came(r, u, p),
            Next::Provider(_, Provider::Played(r)) => self.played(r),
            Next::Provider(_, Provider::Result(n)) => {
                let result = self.tools[n].tool.map(|script| self.case.tools[script].returns.clone());
                self.tool_ended(n, result.unwrap_or(Err(String::new())));
            }
            Next::News => {
                let (_, news) = self.ear.list[self.ear.behind].clone();
                self.ear.behind += 1;
                match news {
                    News::Start(_) => self.user_started(),
                    News::Stop(n) => self.user_stopped(n),
                    News::Interim(_) => self.interim_came(),
                    News::Final(item) => self.final_came(item),
                    News::Act(action) => self.act(action.what),
                }
            }
        }
    }
}
