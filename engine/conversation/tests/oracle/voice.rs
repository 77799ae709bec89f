//! What the agent says: steps of the LLM, tools, the voice, the first sample and the last.
//!
//! Readings: the voice of a reply behind other speech is asked when that has ended; pieces before a failed one are still spoken; the
//! result of a tool stands in the history when it came in.

use serde_json::{Value, json};

use super::barge::position;
use super::case::{Answer, Message, S, Us};
use super::heard;
use super::record::{Kind, Of, Piece, Record, Stage, Step, ToolRun, Utterance};

/// A stage that fails for so long ends the call.
const BROKEN: Us = 30 * S;
/// What the voice adds to each piece.
const TAIL: Us = 10_000;

impl Record<'_> {
    /// First token and whole text, after the asking.
    pub(crate) fn llm_times(&self, answer: Option<usize>) -> (Us, Us) {
        answer.map_or((self.case.defaults.0, self.case.defaults.1), |n| {
            (self.case.answers[n].ttft, self.case.answers[n].llm)
        })
    }

    /// The first step of an answer to `text`.
    pub(crate) fn ask_llm(&mut self, r: usize, text: &str) {
        let wanted = heard::plain(text);
        let fits = |answer: &Answer| {
            answer.to == "*" || !answer.to.starts_with("tool:") && heard::plain(&answer.to) == wanted
        };
        let answer = self.case.answers.iter().position(fits);
        self.ask_step(r, answer);
    }

    fn ask_step(&mut self, r: usize, answer: Option<usize>) {
        let tools = self.replies[r].steps.len() < self.case.settings.tool_steps;
        let asked = self.request();
        self.replies[r].steps.push(Step { asked, answer, tools, first: None, done: false, failed: false });
        self.tell("llm.started", json!({}));
    }

    pub(crate) fn first_token(&mut self, r: usize) {
        let now = self.now;
        let Some(step) = self.replies[r].steps.last_mut() else { return };
        let fails = step.answer.is_some_and(|n| self.case.answers[n].fails);
        if fails {
            self.llm_failed(r, "scripted");
        } else {
            step.first = Some(now);
        }
    }

    /// A stage that has failed for 30 s on end, from its first failure since a success, ends the call.
    fn stage_failed(&mut self, stage: Stage, reason: &str) {
        let name = if stage == Stage::Llm { "llm" } else { "tts" };
        self.tell("error", json!({"stage": name, "reason": reason}));
        self.fates.push((self.now, stage, false));
        let of_stage = self.fates.iter().rev().filter(|(_, other, _)| *other == stage);
        let first = of_stage.take_while(|(_, _, well)| !well).last().map_or(self.now, |(at, _, _)| *at);
        self.broken |= self.now - first >= BROKEN;
    }

    pub(crate) fn llm_failed(&mut self, r: usize, reason: &str) {
        self.stage_failed(Stage::Llm, reason);
        if let Some(step) = self.replies[r].steps.last_mut() {
            (step.done, step.failed) = (true, true);
        }
        if self.replies[r].place.is_none() {
            self.replies[r].gone = Some(self.now);
            return;
        }
        self.apologise(r);
    }

    fn apologise(&mut self, r: usize) {
        if let Some(Message { say, audio, .. }) = self.case.settings.error.clone() {
            let utterance = self.utterance(Of::Message, &say, audio);
            self.replies[r].utterances.push(utterance);
        }
    }

    /// A step's whole text and calls are there.
    pub(crate) fn words_came(&mut self, r: usize) {
        self.fates.push((self.now, Stage::Llm, true));
        let Some(step) = self.replies[r].steps.last_mut() else { return };
        step.done = true;
        let Some(n) = step.answer else { return };
        let answer = &self.case.answers[n];
        if !answer.parts.is_empty() {
            let pieces = answer.parts.iter().map(|part| Piece {
                words: part.words.clone(),
                fails: part.fails,
                ..Piece::new(&part.say, part.audio + TAIL)
            });
            let pieces = pieces.collect();
            let utterance = Utterance { of: Of::Step, pieces, ttfb: answer.ttfb, closed: false };
            self.replies[r].utterances.push(utterance);
        }
        if self.replies[r].place.is_some() {
            // The words come before the calls: their voice is asked first.
            if let Some((_, u)) =
                self.wants_voice().filter(|(whose, _)| *whose == r && self.may_ask_at(r) <= self.now)
            {
                self.ask_voice(r, u);
            }
            self.committed_now(r);
        }
    }

    /// The reply's turn is committed, and its step may have ended: guardrail and tools take effect.
    pub(crate) fn committed_now(&mut self, r: usize) {
        let Some(step) = self.replies[r].steps.last().filter(|step| step.done && !step.failed) else {
            return;
        };
        let Some(answer) = step.answer.map(|n| &self.case.answers[n]) else { return };
        let calls = if step.tools && !answer.guardrail { answer.calls.clone() } else { Vec::new() };
        if answer.guardrail {
            self.replies[r].interruptible = false;
            if self.replies[r].held() {
                let now = self.now;
                if let Some(hold) = self.replies[r].holds.last_mut() {
                    hold.1 = Some(now);
                }
                self.refresh_state();
            }
        }
        self.replies[r].tools_due = !calls.is_empty();
        for (name, arguments) in calls {
            let tool = self.case.tools.iter().position(|tool| tool.name == name);
            let started = self.request();
            let run = ToolRun { reply: r, tool, name, arguments, started, result: None, delay_judged: false };
            self.tools.push(run);
            match tool.map(|tool| self.case.tools[tool].on_start.clone()) {
                None => self.tool_ended(self.tools.len() - 1, Err("unknown tool".into())),
                Some(words) => self.tool_says(r, Of::OnStart, words),
            }
        }
    }

    fn tool_says(&mut self, r: usize, of: Of, words: Option<Message>) {
        if let Some(Message { say, audio, .. }) = words {
            let utterance = self.utterance(of, &say, audio);
            self.replies[r].utterances.push(utterance);
        }
    }

    pub(crate) fn tool_delayed(&mut self, n: usize) {
        self.tools[n].delay_judged = true;
        let r = self.tools[n].reply;
        let quiet = |r: &usize| !self.replies[*r].held() && self.replies[*r].front().is_none();
        let silent = self.floor().iter().all(quiet) && self.replies[r].gone.is_none();
        let words = self.tools[n].tool.and_then(|tool| self.case.tools[tool].on_delay.clone());
        if silent && self.replies[r].tools_due {
            self.tool_says(r, Of::OnDelay(n), words);
        }
    }

    pub(crate) fn tool_ended(&mut self, n: usize, result: Result<Value, String>) {
        self.tools[n].result = Some(self.now);
        let ToolRun { reply: r, ref name, ref arguments, .. } = self.tools[n];
        let (name, arguments) = (name.clone(), arguments.clone());
        let value = match &result {
            Ok(value) => value.clone(),
            Err(reason) => {
                self.tell("error", json!({"stage": "tool", "reason": reason}));
                json!(reason)
            }
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.tell("tool_call", json!({"tool_name": name, "parameters": arguments, "result": value}));
        self.remember(json!({"role": "tool", "name": name, "arguments": arguments, "text": text}));
        if self.replies[r].gone.is_some() || !self.replies[r].tools_due {
            return;
        }
        for utterance in &mut self.replies[r].utterances {
            if utterance.of == Of::OnDelay(n) && !utterance.started() {
                utterance.closed = true;
                utterance.drop_rest(0);
            }
        }
        let script = self.tools[n].tool.map(|tool| &self.case.tools[tool]);
        let words = script.and_then(|tool| match result {
            Ok(_) => tool.on_success.clone(),
            Err(_) => tool.on_error.clone(),
        });
        self.tool_says(r, Of::OnResult, words);
    }

    /// An utterance of one fixed text.
    pub(crate) fn utterance(&self, of: Of, say: &str, audio: Us) -> Utterance {
        let pieces = vec![Piece::new(say, audio + TAIL)];
        Utterance { of, pieces, ttfb: self.case.defaults.2, closed: false }
    }

    /// When a reply's voice may be asked.
    fn may_ask_at(&self, r: usize) -> Us {
        let spaced = self.ends.iter().max().map_or(0, |end| end + self.case.settings.spacing);
        self.replies[r].not_before.max(spaced)
    }

    /// Whose voice is wanted now: that of whoever has the floor, else that of a preparation.
    fn wants_voice(&self) -> Option<(usize, usize)> {
        let of_preparation = || self.preparation().filter(|_| self.case.settings.preemptive_tts);
        let r = self.head().or_else(of_preparation)?;
        let u = self.replies[r].front()?;
        self.replies[r].utterances[u]
            .pieces
            .iter()
            .any(|piece| piece.asked.is_none() && !piece.dropped)
            .then_some((r, u))
    }

    pub(crate) fn voice_at(&self) -> Option<Us> {
        self.wants_voice().map(|(r, _)| self.may_ask_at(r)).filter(|at| *at > self.now)
    }

    /// The next thing that is possible without news.
    pub(crate) fn settle_once(&mut self) -> bool {
        if self.warning_may_sound() {
            self.say_warning();
            return true;
        }
        if let Some(r) = self.head()
            && self.step_follows(r)
        {
            self.next_step(r);
            return true;
        }
        if let Some((r, u)) = self.wants_voice()
            && self.may_ask_at(r) <= self.now
        {
            self.ask_voice(r, u);
            return true;
        }
        let Some(r) = self.head() else { return false };
        let reply = &self.replies[r];
        let Some(u) = reply.front() else {
            if reply.asking() || reply.tools_due {
                return false;
            }
            self.reply_ends(r);
            return true;
        };
        let utterance = &reply.utterances[u];
        let Some(p) = utterance.current() else {
            self.utterance_ends(r, u);
            return true;
        };
        let piece = &utterance.pieces[p];
        if piece.ready.is_none() || piece.started.is_some() || reply.held() {
            return false;
        }
        if !utterance.started() && reply.interruptible && self.ear.hearing().is_some() {
            if self.holds_first_sample(r) {
                self.hold(r);
                return true;
            }
            return false;
        }
        self.piece_starts(r, u, p);
        true
    }

    /// Words were played and all results are in.
    fn step_follows(&self, r: usize) -> bool {
        let reply = &self.replies[r];
        let open = reply.utterances.iter().filter(|utterance| !utterance.closed);
        reply.tools_due
            && !self.tool_runs(r)
            && open.into_iter().all(|utterance| utterance.of == Of::OnResult)
    }

    fn next_step(&mut self, r: usize) {
        self.replies[r].tools_due = false;
        let last = self.replies[r].steps.last().and_then(|step| step.answer);
        let calls = last.map(|n| self.case.answers[n].calls.clone()).unwrap_or_default();
        let fits = |answer: &Answer| {
            answer.to.strip_prefix("tool:").is_some_and(|name| calls.iter().any(|(call, _)| call == name))
        };
        let answer = self.case.answers.iter().position(fits);
        self.ask_step(r, answer);
    }

    fn ask_voice(&mut self, r: usize, u: usize) {
        for p in 0..self.replies[r].utterances[u].pieces.len() {
            let asked = self.request();
            let piece = &mut self.replies[r].utterances[u].pieces[p];
            if !piece.dropped {
                piece.asked = Some(asked);
                let text = piece.text.clone();
                self.tell("tts.started", json!({"text": text}));
            }
        }
    }

    pub(crate) fn sound_came(&mut self, r: usize, u: usize, p: usize) {
        let now = self.now;
        let piece = &mut self.replies[r].utterances[u].pieces[p];
        if piece.fails {
            self.tts_failed(r, u, p, "scripted");
        } else {
            piece.ready = Some(now);
            self.fates.push((now, Stage::Tts, true));
        }
    }

    pub(crate) fn tts_failed(&mut self, r: usize, u: usize, p: usize, reason: &str) {
        self.stage_failed(Stage::Tts, reason);
        let reply = &mut self.replies[r];
        if reply.place.is_none() {
            reply.gone = Some(self.now);
            return;
        }
        reply.utterances[u].drop_rest(p);
        if reply.utterances[u].of != Of::Step {
            return;
        }
        for utterance in reply.utterances.iter_mut().skip(u + 1) {
            utterance.drop_rest(0);
            utterance.closed = true;
        }
        reply.tools_due = false;
        self.cancel_llm(r);
        self.apologise(r);
    }

    fn piece_starts(&mut self, r: usize, u: usize, p: usize) {
        let now = self.now;
        let first = !self.replies[r].utterances[u].started();
        let (_, order) = self.request();
        let piece = &mut self.replies[r].utterances[u].pieces[p];
        (piece.started, piece.running_since) = (Some(now), order);
        self.tell("playout.started", json!({"position": 0.0}));
        if first {
            let text = self.replies[r].utterances[u].text();
            self.tell("agent.started_speaking", json!({"text": text}));
        }
        self.refresh_state();
    }

    /// The sounding piece was played to its end.
    pub(crate) fn played(&mut self, r: usize) {
        let now = self.now;
        let Some(u) = self.replies[r].sounding() else { return };
        let Some(p) = self.replies[r].utterances[u].current() else { return };
        let piece = &mut self.replies[r].utterances[u].pieces[p];
        piece.ended = Some(now);
        let fields = json!({"position": position(piece.length), "interrupted": false, "heard": piece.text});
        self.tell("playout.finished", fields);
    }

    fn utterance_ends(&mut self, r: usize, u: usize) {
        let utterance = &self.replies[r].utterances[u];
        let (sounded, text) = (utterance.started(), utterance.text());
        self.replies[r].utterances[u].closed = true;
        if sounded {
            self.ends.push(self.now);
            self.stopped_speaking(&text, false);
        }
        let reply = &self.replies[r];
        if reply.front().is_some() || reply.asking() || reply.tools_due {
            self.refresh_state();
        }
    }

    fn reply_ends(&mut self, r: usize) {
        self.replies[r].gone = Some(self.now);
        self.refresh_state();
        if self.replies[r].kind == Kind::Exit {
            self.call_ends("max_call_duration", Value::Null);
        }
    }
}

impl Piece {
    fn new(say: &str, length: Us) -> Self {
        Self {
            text: say.to_owned(),
            length,
            words: Vec::new(),
            fails: false,
            asked: None,
            ready: None,
            started: None,
            running_since: 0,
            ended: None,
            dropped: false,
        }
    }
}

impl Utterance {
    /// The piece and those behind it will never sound, unless they do.
    fn drop_rest(&mut self, from: usize) {
        for piece in self.pieces.iter_mut().skip(from).filter(|piece| piece.started.is_none()) {
            piece.dropped = true;
        }
    }
}
