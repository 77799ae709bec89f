//! The end of the user's turn, and preemptive replies.
//!
//! Assumptions where the turn-taking page leaves room:
//!
//! - A final discards the current preemptive reply, whether or not another one follows, unless that
//!   one answers the same text already.
//! - A hint of the STT's provider counts from its arrival to the next start of speech. It must come
//!   during speech, after speech of the turn, or while the turn has text.
//! - The limit of three preemptive replies counts from the start of the turn.
//! - When a turn without text ends, its onset and speech are dropped. A transcript that arrives
//!   later is still timed from that speech.

use serde_json::{Value, json};

use super::case::{Hint, Micros, SECOND};
use super::heard_text;
use super::record::{CallRecord, CommittedTurn, Reply, ReplyKind, UtteranceKind};

/// A turn that began longer ago gets no preemptive reply.
const MAX_PREEMPTIVE_TURN: Micros = 10 * SECOND;
const MAX_PREEMPTIVE_REPLIES: usize = 3;

/// The origin of a committed turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TurnSource {
    Spoken { backchannel: bool },
    Typed,
}

impl CallRecord<'_> {
    /// The wait for the end of the turn is over.
    pub(crate) fn end_turn(&mut self) {
        let turn = self.open_turn();
        if turn.finals.is_empty() {
            self.late_speech_end = turn.last_segment.map(|last| last.to).or(self.late_speech_end);
            self.close_turn();
            return;
        }
        let late = self.late_speech_end.take();
        let backchannel = self.turn_is_backchannel();
        let over_reply = self.head().is_some_and(|r| self.replies[r].interruptible);
        let min_words = self.case.settings.min_interruption_words;
        if over_reply && !backchannel && heard_text::count_words(&self.open_turn_text()) < min_words
        {
            let finals: Vec<String> = turn.finals.iter().map(|text| (*text).to_owned()).collect();
            self.carried_texts.extend(finals);
            self.discard_preemptive_reply();
            self.close_turn();
            return;
        }
        let text = self.open_turn_text();
        let spoken_until = turn.last_segment.map(|last| last.to).or(late);
        self.carried_texts.clear();
        self.close_turn();
        self.commit_turn(&text, spoken_until, TurnSource::Spoken { backchannel });
    }

    fn close_turn(&mut self) {
        self.turn_start = self.user_input.consumed;
        self.preemptive_attempts = 0;
        self.backchannel_finals.clear();
    }

    /// A turn enters the history and its reply starts.
    pub(crate) fn commit_turn(&mut self, text: &str, speech_end: Option<Micros>, turn: TurnSource) {
        let silent = turn == TurnSource::Spoken { backchannel: true } || self.ending;
        if !silent {
            self.farewell_spoken = false;
            self.replies.iter_mut().for_each(|reply| reply.ends_call = false);
            if let Some(head) = self.head()
                && (self.replies[head].interruptible || self.replies[head].is_unheard_opening())
            {
                self.cancel_reply(head, true);
            }
            self.cancel_waiting_replies();
        }
        self.emit("utterance_committed", json!({"text": text}));
        let prepared = self.preemptive_reply().filter(|_| turn != TurnSource::Typed);
        let adopted = prepared.filter(|r| {
            let (for_text, knew) = self.replies[*r].preemptive_basis.clone().unwrap_or_default();
            heard_text::normalize_text(&for_text) == heard_text::normalize_text(text)
                && knew == self.history.len()
        });
        if adopted.is_none() && turn != TurnSource::Typed {
            self.discard_preemptive_reply();
        }
        self.append_history(json!({"role": "user", "text": text, "interrupted": false}));
        self.turns.push(CommittedTurn { committed_at: self.now, speech_end, reply: None });
        if silent {
            return;
        }
        let r = adopted.unwrap_or_else(|| {
            self.replies
                .push(Reply::new(ReplyKind::Answer, self.case.settings.allow_interruptions));
            self.replies.len() - 1
        });
        let floor_position = self.answer_floor_position();
        self.replies[r].floor_position = Some(floor_position);
        if let Some(turn) = self.turns.last_mut() {
            turn.reply = Some(r);
        }
        self.update_agent_state();
        if adopted.is_some() {
            self.apply_generation(r);
            return;
        }
        self.request_llm(r, text);
    }

    fn answer_floor_position(&self) -> i64 {
        self.next_floor_position()
    }

    pub(crate) fn next_floor_position(&self) -> i64 {
        self.replies.iter().filter_map(|reply| reply.floor_position).max().unwrap_or(0) + 1000
    }

    pub(crate) fn discard_preemptive_reply(&mut self) {
        if let Some(r) = self.preemptive_reply() {
            self.replies[r].ended_at = Some(self.now);
            self.cancel_llm(r);
        }
    }

    /// The STT's provider expects the end of the turn: its interim text counts as final.
    pub(crate) fn hint_received(&mut self, hint: Hint) {
        if hint == Hint::EagerEnd && self.turn_is_open() {
            let interim = self.user_input.interim_text(&self.open_turn());
            let texts = [self.open_turn_text(), interim];
            let texts = texts.iter().map(String::as_str).filter(|text| !text.is_empty());
            self.start_preemptive_reply_to(&texts.collect::<Vec<_>>().join(" "));
        }
    }

    /// Starts a preemptive reply after a final, if allowed.
    pub(crate) fn start_preemptive_reply(&mut self) {
        self.start_preemptive_reply_to(&self.open_turn_text());
    }

    fn start_preemptive_reply_to(&mut self, text: &str) {
        let answers_it = |r: usize| {
            let (for_text, knew) = self.replies[r].preemptive_basis.clone().unwrap_or_default();
            heard_text::normalize_text(&for_text) == heard_text::normalize_text(text)
                && knew == self.history.len()
        };
        if self.ending || self.preemptive_reply().is_some_and(answers_it) {
            return;
        }
        self.discard_preemptive_reply();
        let turn = self.open_turn();
        let long = turn.onset.is_some_and(|onset| self.now - onset > MAX_PREEMPTIVE_TURN);
        let wanted = self.case.settings.preemptive_generation && self.head().is_none();
        if !wanted || long || self.preemptive_attempts == MAX_PREEMPTIVE_REPLIES {
            return;
        }
        self.preemptive_attempts += 1;
        let mut reply = Reply::new(ReplyKind::Answer, self.case.settings.allow_interruptions);
        reply.preemptive_basis = Some((text.to_owned(), self.history.len()));
        self.replies.push(reply);
        self.request_llm(self.replies.len() - 1, text);
    }

    /// The latencies of each turn.
    pub(crate) fn turn_times(&self) -> Vec<Value> {
        let seconds = |us: Micros| json!(((us as f64 / 1e6) * 1e3).round() / 1e3);
        let each = self.turns.iter().map(|turn| {
            let reply = turn.reply.map(|r| &self.replies[r]);
            let step =
                reply.and_then(|reply| reply.generations.first()).filter(|step| !step.failed);
            let llm = step.and_then(|step| Some(step.first_token_at? - step.requested.0));
            let first = reply.and_then(|reply| {
                let segments = reply.utterances.iter().flat_map(|u| &u.segments);
                segments
                    .filter(|segment| segment.started_at.is_some())
                    .min_by_key(|segment| segment.started_at)
            });
            let tts = first.and_then(|segment| Some(segment.ready_at? - segment.requested?.0));
            let voice = first
                .and_then(|segment| segment.started_at)
                .zip(turn.speech_end)
                .map(|(a, b)| a - b);
            json!({
                "endpointing": turn.speech_end.map(|until| seconds(turn.committed_at - until)),
                "llm_ttft": llm.map(seconds),
                "tts_ttfb": tts.map(seconds),
                "voice_to_voice": voice.map(seconds),
            })
        });
        each.collect()
    }

    /// Creates a reply with one message.
    pub(crate) fn new_message_reply(
        &mut self,
        kind: ReplyKind,
        say: &str,
        audio: Micros,
        interruptible: bool,
        floor_position: i64,
    ) -> usize {
        let mut reply = Reply::new(kind, interruptible);
        reply.floor_position = Some(floor_position);
        reply.utterances.push(self.new_message_utterance(UtteranceKind::Message, say, audio));
        self.replies.push(reply);
        self.replies.len() - 1
    }
}
