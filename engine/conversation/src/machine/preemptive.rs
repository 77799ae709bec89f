//! Preemptive replies: the LLM is asked before the turn is committed.

use core::time::Duration;

use crate::contract::event::TurnTimes;
use crate::machine::conversation::Conversation;
use crate::machine::reply::{Reply, ReplyKind};
use crate::words::{append_words, normalize_text};

/// Maximum age of a turn that gets a preemptive reply, measured from its first speech onset.
const MAX_PREEMPTIVE_TURN: Duration = Duration::from_secs(10);

/// Maximum number of preemptive replies for one turn, including discarded ones.
const MAX_PREEMPTIVE_REPLIES: u32 = 3;

impl Conversation {
    /// Requests the LLM before the turn is committed, if `preemptive_generation` is set and the
    /// floor is empty.
    pub(crate) fn start_preemptive_reply(&mut self) {
        let mut text = self.carried_text.clone();
        append_words(&mut text, &self.turn.text);
        self.start_preemptive_reply_to(text);
    }

    /// The same for the open turn with its interim text, which may become final.
    pub(crate) fn start_eager_reply(&mut self) {
        if self.turn.is_open() {
            let mut text = self.carried_text.clone();
            append_words(&mut text, &self.open_turn().transcript);
            self.start_preemptive_reply_to(text);
        }
    }

    /// Whether the preemptive reply answers `text`.
    fn is_preemptive_reply_to(&self, text: &str) -> bool {
        self.preemptive_reply
            .as_ref()
            .and_then(|reply| reply.preemptive_basis.as_ref())
            .is_some_and(|(prepared, version)| {
                normalize_text(prepared) == normalize_text(text) && *version == self.history.version
            })
    }

    fn start_preemptive_reply_to(&mut self, text: String) {
        if self.is_preemptive_reply_to(&text) {
            self.explain_decision(|| "the preemptive reply answers the same words".into());
            return;
        }
        self.discard_preemptive_reply("the turn has more words");
        let wanted = self.spec.preemptive_generation && self.floor.is_empty() && !self.is_ending();
        if !wanted {
            if self.spec.preemptive_generation {
                self.explain_decision(|| "no preemptive reply: another reply is current".into());
            }
            return;
        }
        let now = self.now;
        if self.turn.first_onset.is_some_and(|onset| now.since(onset) > MAX_PREEMPTIVE_TURN) {
            self.explain_decision(|| "no preemptive reply: the turn is longer than 10 s".into());
            return;
        }
        if self.turn.preemptive_attempts >= MAX_PREEMPTIVE_REPLIES {
            self.explain_decision(|| {
                "no preemptive reply: the limit of three per turn is reached".into()
            });
            return;
        }
        self.turn.preemptive_attempts += 1;
        let mut reply = self.new_reply(ReplyKind::Turn, self.spec.allow_interruptions);
        reply.turn_times = Some(TurnTimes::default());
        reply.preemptive_basis = Some((text.clone(), self.history.version));
        self.explain_decision(|| {
            "preemptive_generation: the reply is requested before the commit".into()
        });
        self.request_llm(&mut reply, Some(&text), false);
        self.preemptive_reply = Some(Box::new(reply));
    }

    /// The preemptive reply, if it still answers `text` and the history has not changed since.
    pub(crate) fn adopt_preemptive_reply(&mut self, text: &str) -> Option<Reply> {
        let (prepared, version) = self.preemptive_reply.as_ref()?.preemptive_basis.as_ref()?;
        if normalize_text(prepared) != normalize_text(text) {
            self.discard_preemptive_reply("the turn's text differs");
            return None;
        }
        if *version != self.history.version {
            self.discard_preemptive_reply("the history has changed");
            return None;
        }
        self.explain_decision(|| "the preemptive reply is used".into());
        self.preemptive_reply.take().map(|reply| *reply)
    }
}
