//! Whose words sound: the queue of replies, its head has the floor.

use crate::conversation::Conversation;
use crate::event::{AgentState, Event, TurnTimes};
use crate::history::spoken;
use crate::input::Epoch;
use crate::output::{Output, Source};
use crate::phrase;
use crate::reply::{From, Kind, Reply, Utterance, Waits};
use crate::spec::Phrasing;
use crate::time::Time;
use crate::timers::Reason;

impl Conversation {
    pub(crate) fn new_reply(&mut self, kind: Kind, interruptible: bool) -> Reply {
        let epoch = Epoch(self.next_epoch);
        self.next_epoch = self.next_epoch.wrapping_add(1);
        Reply::new(epoch, kind, interruptible)
    }

    /// A reply of one fixed text.
    pub(crate) fn message(&mut self, kind: Kind, source: Source, text: String, interruptible: bool) -> Reply {
        let mut reply = self.new_reply(kind, interruptible);
        reply.utterances.push_back(self.fixed(source, text));
        reply
    }

    /// An utterance of one fixed text, cut for the voice.
    pub(crate) fn fixed(&self, source: Source, text: String) -> Utterance {
        let mut utterance = Utterance::new(From::Message(source), text, true);
        cut(&mut utterance, self.spec.phrasing, &mut 0);
        utterance
    }

    /// What the agent does, told when it changes.
    pub(crate) fn refresh_state(&mut self) {
        let state = match self.floor.front() {
            Some(head) if head.held => AgentState::Listening,
            Some(head) if head.sounding().is_some() => AgentState::Speaking,
            _ if self.floor.iter().any(|reply| reply.thinks() && !reply.held) => AgentState::Thinking,
            _ => AgentState::Listening,
        };
        if state != self.state {
            self.state = state;
            self.tell(Event::AgentState { state });
        }
    }

    /// Takes the next step that is possible without news from outside. False if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let now = self.now;
        let hearing = self.speech.hearing;
        if self.spec.preemptive_tts
            && self.floor.is_empty()
            && self.prep.is_some()
            && now >= self.ask_at(Time::ZERO)
        {
            self.ask_voice_for_preparation();
        }
        let Some(head) = self.floor.front() else { return false };
        let out = self.tools.iter().any(|tool| tool.step.epoch == head.epoch && !tool.orphan);
        if head.tools_due && !out && head.utterances.iter().all(Utterance::is_after_result) {
            self.because(|| "the next step is asked: its words were played and all results are in".into());
            self.next_step();
            return true;
        }
        let (interruptible, held, may_ask) =
            (head.interruptible, head.held, now >= self.ask_at(head.not_before));
        let Some(utterance) = head.utterances.front() else {
            if head.asking() || head.tools_due {
                return false;
            }
            self.end_reply();
            return true;
        };
        if utterance.pieces.is_empty() {
            if !utterance.complete {
                return false;
            }
            self.finish_utterance();
            return true;
        }
        if may_ask && utterance.wants_voice(self.spec.phrasing.ahead()) {
            self.ask_voice();
            return true;
        }
        let first = utterance.played == 0 && utterance.started.is_none();
        let Some(index) = utterance.pieces.iter().position(|piece| !piece.permitted) else { return false };
        if utterance.pieces[index].ready.is_none() || held {
            if !may_ask && utterance.pieces[index].asked.is_none() {
                self.explain_wait(Waits::Time);
            }
            return false;
        }
        if index == 0 && first && interruptible && hearing {
            if !head.is_unheard_greeting() && self.holds() {
                self.because(|| "held before its first sample: the user speaks".into());
                self.hold();
                return true;
            }
            self.explain_wait(Waits::User);
            return false;
        }
        let Some(piece) =
            self.floor.front_mut().and_then(|head| head.utterances.front_mut()?.pieces.get_mut(index))
        else {
            return false;
        };
        piece.permitted = true;
        if let Some(id) = piece.id {
            self.outputs.push_back(Output::Play(id));
        }
        true
    }

    /// Why the front utterance does not begin yet, once.
    fn explain_wait(&mut self, waits: Waits) {
        let Some(head) = self.floor.front_mut() else { return };
        let not_before = head.not_before;
        let Some(utterance) = head.utterances.front_mut() else { return };
        if utterance.waits.replace(waits) == Some(waits) {
            return;
        }
        let (at, delay) = (self.ask_at(not_before), self.spec.min_consecutive_speech_delay);
        self.because(|| match waits {
            Waits::User => "the first sample waits: the user is heard".into(),
            Waits::Time if at == not_before => format!("the voice is asked at {at}: greeting.wait"),
            Waits::Time => format!("the voice is asked at {at}: min_consecutive_speech_delay {delay:?}"),
        });
    }

    /// When the TTS may be asked for a new utterance.
    pub(crate) fn ask_at(&self, not_before: Time) -> Time {
        let spaced =
            self.last_playout_end.map_or(Time::ZERO, |end| end + self.spec.min_consecutive_speech_delay);
        not_before.max(spaced)
    }

    /// The deadline at which the head's TTS may be asked, where it must wait for that.
    pub(crate) fn spacing_deadline(&self) -> Option<Time> {
        let ahead = self.spec.phrasing.ahead();
        let waits = |reply: &Reply| reply.utterances.front().is_some_and(|u| u.wants_voice(ahead));
        let not_before = match self.floor.front() {
            Some(head) => waits(head).then_some(head.not_before),
            None => {
                self.prep.as_ref().filter(|prep| self.spec.preemptive_tts && waits(prep)).map(|_| Time::ZERO)
            }
        };
        not_before.map(|at| self.ask_at(at)).filter(|at| *at > self.now)
    }

    /// The front utterance was played to its end (or had nothing to say).
    fn finish_utterance(&mut self) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        let Some(mut utterance) = head.utterances.pop_front() else { return };
        if utterance.started.is_some() {
            // What sounds next was not ducked, and may be what nobody can duck.
            self.unduck(false);
            self.timers.clear(Reason::Heard);
            utterance.heard = utterance.heard.max(utterance.played);
            self.last_playout_end = Some(now);
            self.close(utterance, false);
        }
        // A reply that ends here goes from speaking to listening, without a thought in between.
        if self
            .floor
            .front()
            .is_some_and(|head| !head.utterances.is_empty() || head.asking() || head.tools_due)
        {
            self.refresh_state();
        }
    }

    /// Tells the end of an utterance that sounded, and keeps what was heard of it.
    fn close(&mut self, mut utterance: Utterance, interrupted: bool) {
        let now = self.now;
        let text = utterance.listen(now).to_owned();
        let Some(began) = utterance.started else { return };
        self.tell(Event::AgentStoppedSpeaking { text: text.clone(), utterance: utterance.id });
        if !text.is_empty() {
            let item = spoken(text, interrupted, utterance.id, began, utterance.in_context);
            self.remember(item, utterance.step);
        }
    }

    /// The head has nothing more to do.
    fn end_reply(&mut self) {
        let Some(mut reply) = self.floor.pop_front() else { return };
        self.unpause();
        self.last_reply_end = self.now;
        self.timers.clear(Reason::Resume);
        self.tell_turn(reply.times.take());
        self.tell_heard(&reply, false);
        self.refresh_state();
        if reply.kind == Kind::Exit {
            self.exit_spoken();
        }
    }

    /// Ends a reply: its epoch is cancelled, LLM and TTS are stopped, history keeps what was heard.
    pub(crate) fn kill(&mut self, index: usize, told: bool) {
        let now = self.now;
        let Some(mut reply) = self.floor.remove(index) else { return };
        // Nobody knew of a reply that waits behind what may not be interrupted.
        let unknown = index > 0 && !reply.spoke && self.floor.front().is_some_and(|head| !head.interruptible);
        let told = told && !unknown && !reply.is_unheard_greeting();
        if told && !core::mem::replace(&mut reply.interrupted, true) {
            self.tell(Event::AgentInterrupted);
        }
        if reply.voiced {
            self.outputs.push_back(Output::Cancel(reply.epoch));
        }
        if index == 0 {
            self.unpause();
        }
        if let Some(mut utterance) =
            reply.utterances.pop_front().filter(|utterance| utterance.started.is_some())
        {
            utterance.listen(now);
            if let Some(piece) = utterance.pieces.front().filter(|piece| piece.started) {
                let heard = utterance.text[piece.start..utterance.heard.max(piece.start)].to_owned();
                let position = piece.position(now).as_seconds();
                self.tell(Event::PlayoutFinished { position, interrupted: true, heard });
            }
            self.last_playout_end = Some(now);
            self.timers.clear(Reason::Heard);
            self.close(utterance, true);
        }
        if let Some(step) = reply.step.take().filter(|step| !step.ended) {
            self.outputs.push_back(Output::CancelLlm(step.id));
            self.tell(Event::LlmCancelled);
        }
        self.orphan_tools(reply.epoch);
        if index == 0 {
            self.timers.clear(Reason::Resume);
            self.unduck(false);
        }
        self.last_reply_end = now;
        // One that was cut before its first sample has no end that was heard; that it was cut is told with its times.
        if let Some(times) = reply.times.as_mut().filter(|_| reply.interrupted && !reply.spoke) {
            times.timeline.interrupted = Some(now.as_seconds());
        }
        self.tell_turn(reply.times.take());
        self.tell_heard(&reply, true);
        self.refresh_state();
    }

    /// Tells where a turn's time went, once.
    pub(crate) fn tell_turn(&mut self, times: Option<TurnTimes>) {
        if let Some(times) = times {
            self.tell(Event::Turn(times));
        }
    }

    /// Tells until when a turn's answer was heard, once it is over.
    fn tell_heard(&mut self, reply: &Reply, cut: bool) {
        let (true, Some(turn), Some(end)) = (reply.spoke, reply.turn, self.last_playout_end) else { return };
        let (end, onset) = match reply.silenced {
            Some((at, onset)) => (at, Some(onset)),
            None => (end, None),
        };
        let now = self.now;
        let cut = cut.then(|| onset.unwrap_or(now).as_seconds());
        self.tell(Event::TurnHeard {
            turn,
            heard_end: end.as_seconds(),
            interrupted: cut,
            barge_in: onset.map(|onset| end.since(onset).as_secs_f64()),
        });
    }

    /// Drops what is prepared for the open turn.
    pub(crate) fn drop_preparation(&mut self, why: &'static str) {
        let Some(mut prep) = self.prep.take() else { return };
        self.because(|| format!("the prepared reply is dropped: {why}"));
        if prep.voiced {
            self.outputs.push_back(Output::Cancel(prep.epoch));
        }
        if let Some(step) = prep.step.take().filter(|step| !step.ended) {
            self.outputs.push_back(Output::CancelLlm(step.id));
            self.tell(Event::LlmCancelled);
        }
    }

    /// Nothing sounds, is held, queued or pending, no tool runs, no turn is open and nobody is heard.
    pub(crate) fn is_free(&self) -> bool {
        self.floor.is_empty()
            && self.prep.is_none()
            && self.tools.is_empty()
            && !self.turn.is_open()
            && !self.speech.hearing
    }
}

/// Cuts what can be cut now into pieces; `part` counts them.
pub(crate) fn cut(utterance: &mut Utterance, phrasing: Phrasing, part: &mut u32) {
    if phrasing == Phrasing::Flushed {
        if utterance.complete && utterance.cut_piece(utterance.text.len() - utterance.cut, *part) {
            *part += 1;
        }
        return;
    }
    loop {
        let rest = &utterance.text[utterance.cut..];
        let Some(len) = phrase::next(rest, utterance.cut == 0, utterance.complete) else { return };
        let spoken = rest[..len].chars().any(char::is_alphanumeric);
        if !spoken && utterance.complete {
            utterance.cut += len;
        } else if utterance.cut_piece(len, *part) {
            *part += 1;
        }
    }
}
