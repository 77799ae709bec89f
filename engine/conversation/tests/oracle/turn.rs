//! The end of the user's turn, and the replies that are prepared before it.
//!
//! Readings: a final drops the preparation there was, whether or not another follows; three preparations count from the turn's
//! beginning; a turn without text that is over takes its onset and its speech with it, but words that come later are timed from that speech.

use serde_json::{Value, json};

use super::case::{S, Us};
use super::heard;
use super::record::{Committed, Kind, Of, Record, Reply};

/// A turn that began longer ago is not prepared for.
const LONG_TURN: Us = 10 * S;
const MOST_PREPARATIONS: usize = 3;

/// Where a committed turn comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    Spoken { backchannel: bool },
    Typed,
}

impl Record<'_> {
    /// The wait is over.
    pub(crate) fn turn_over(&mut self) {
        let turn = self.turn();
        if turn.finals.is_empty() {
            self.late = turn.last.map(|last| last.to).or(self.late);
            self.close_turn();
            return;
        }
        let late = self.late.take();
        let backchannel = self.turn_is_backchannel();
        let over_reply = self.head().is_some_and(|r| self.replies[r].interruptible);
        let least = self.case.settings.min_words;
        if over_reply && !backchannel && heard::count(&self.text()) < least {
            let said: Vec<String> = turn.finals.iter().map(|text| (*text).to_owned()).collect();
            self.kept.extend(said);
            self.drop_preparation();
            self.close_turn();
            return;
        }
        let text = self.text();
        let spoken_until = turn.last.map(|last| last.to).or(late);
        self.kept.clear();
        self.close_turn();
        self.commit(&text, spoken_until, Turn::Spoken { backchannel });
    }

    fn close_turn(&mut self) {
        self.turn_from = self.ear.behind;
        self.preparations = 0;
        self.back.clear();
    }

    /// A turn enters history; its reply begins.
    pub(crate) fn commit(&mut self, text: &str, spoken_until: Option<Us>, turn: Turn) {
        let silent = turn == Turn::Spoken { backchannel: true } || self.ending;
        if !silent {
            if let Some(head) = self.head()
                && (self.replies[head].interruptible || self.replies[head].unheard_greeting())
            {
                self.kill(head, true);
            }
            self.kill_waiting();
        }
        self.tell("utterance_committed", json!({"text": text}));
        let prepared = self.preparation().filter(|_| turn != Turn::Typed);
        let adopted = prepared.filter(|r| {
            let (for_text, knew) = self.replies[*r].prepared.clone().unwrap_or_default();
            heard::plain(&for_text) == heard::plain(text) && knew == self.history.len()
        });
        if adopted.is_none() && turn != Turn::Typed {
            self.drop_preparation();
        }
        self.remember(json!({"role": "user", "text": text, "interrupted": false}));
        self.turns.push(Committed { at: self.now, spoken_until, reply: None });
        if silent {
            return;
        }
        let r = adopted.unwrap_or_else(|| {
            self.replies.push(Reply::new(Kind::Answer, self.case.settings.allow));
            self.replies.len() - 1
        });
        let place = self.place_of_answer();
        self.replies[r].place = Some(place);
        if let Some(turn) = self.turns.last_mut() {
            turn.reply = Some(r);
        }
        self.refresh_state();
        if adopted.is_some() {
            self.committed_now(r);
            return;
        }
        self.ask_llm(r, text);
    }

    fn place_of_answer(&self) -> i64 {
        self.place_at_back()
    }

    pub(crate) fn place_at_back(&self) -> i64 {
        self.replies.iter().filter_map(|reply| reply.place).max().unwrap_or(0) + 1000
    }

    pub(crate) fn drop_preparation(&mut self) {
        if let Some(r) = self.preparation() {
            self.replies[r].gone = Some(self.now);
            self.cancel_llm(r);
        }
    }

    /// A final may begin a preparation.
    pub(crate) fn prepare(&mut self) {
        if self.ending {
            return;
        }
        self.drop_preparation();
        let turn = self.turn();
        let long = turn.onset.is_some_and(|onset| self.now - onset > LONG_TURN);
        let wanted = self.case.settings.preemptive && self.head().is_none();
        if !wanted || long || self.preparations == MOST_PREPARATIONS {
            return;
        }
        self.preparations += 1;
        let text = self.text();
        let mut reply = Reply::new(Kind::Answer, self.case.settings.allow);
        reply.prepared = Some((text.clone(), self.history.len()));
        self.replies.push(reply);
        self.ask_llm(self.replies.len() - 1, &text);
    }

    /// Where each turn's time went.
    pub(crate) fn turn_times(&self) -> Vec<Value> {
        let seconds = |us: Us| json!(((us as f64 / 1e6) * 1e3).round() / 1e3);
        let each = self.turns.iter().map(|turn| {
            let reply = turn.reply.map(|r| &self.replies[r]);
            let step = reply.and_then(|reply| reply.steps.first()).filter(|step| !step.failed);
            let llm = step.and_then(|step| Some(step.first? - step.asked.0));
            let first = reply.and_then(|reply| {
                let pieces = reply.utterances.iter().flat_map(|u| &u.pieces);
                pieces.filter(|piece| piece.started.is_some()).min_by_key(|piece| piece.started)
            });
            let tts = first.and_then(|piece| Some(piece.ready? - piece.asked?.0));
            let voice = first.and_then(|piece| piece.started).zip(turn.spoken_until).map(|(a, b)| a - b);
            json!({
                "endpointing": turn.spoken_until.map(|until| seconds(turn.at - until)),
                "llm_ttft": llm.map(seconds),
                "tts_ttfb": tts.map(seconds),
                "voice_to_voice": voice.map(seconds),
            })
        });
        each.collect()
    }

    /// A reply of one message.
    pub(crate) fn message(
        &mut self,
        kind: Kind,
        say: &str,
        audio: Us,
        interruptible: bool,
        place: i64,
    ) -> usize {
        let mut reply = Reply::new(kind, interruptible);
        reply.place = Some(place);
        reply.utterances.push(self.utterance(Of::Message, say, audio));
        self.replies.push(reply);
        self.replies.len() - 1
    }
}
