//! When a call needs time, and when it is over: "Gone" and the hang-up.

use std::time::{Duration, Instant};

use conversation::input::{Input, ToolCallId};

use super::Node;
use crate::link::Link;

/// What still sounds at the end of a call, a fade or the last block of a message, may take this long.
const LAST_SOUND: Duration = Duration::from_secs(2);

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on.
    Lives,
    /// It is over and has said all it had to.
    Over,
}

impl Node {
    /// Serves what is due: the conversation, the links, the user's being gone.
    pub(crate) fn clocks(&mut self, now: Instant) -> Fate {
        self.drop_late_offers(now);
        if self.ended.is_some() {
            return self.finish(now);
        }
        if self.origin.is_none() {
            // The offers are all there is of it.
            return if self.links.is_empty() { Fate::Over } else { Fate::Lives };
        }
        self.look_at_the_clock(now);
        self.fail_late_tools(now);
        if self.is_gone(now) {
            self.leave(now);
        }
        if self.ended.is_some() { self.finish(now) } else { Fate::Lives }
    }

    /// Lets the conversation do what its own deadlines ask for: before a tick's sound leaves, so that what is to end does not sound for one
    /// block more.
    pub(crate) fn look_at_the_clock(&mut self, now: Instant) {
        let runs = self.origin.is_some() && self.ended.is_none();
        if runs && self.conversation.poll_timeout().is_some_and(|(at, _)| at <= self.time(now)) {
            self.feed(now, Input::Tick);
        }
    }

    /// When [`Node::clocks`] or [`Node::drive`] has something to do at the latest. The thread's tick serves sound, and all that is a matter of seconds.
    #[must_use]
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let own = self.origin.and_then(|origin| {
            let (at, _) = self.conversation.poll_timeout().filter(|_| self.ended.is_none())?;
            Some(origin + Duration::from_micros(at.as_micros()))
        });
        let links = self.links.iter().filter(|link| !link.is_settled(now)).filter_map(Link::deadline).min();
        [own, links].into_iter().flatten().min()
    }

    /// Whether the thread's tick is soon enough for all its connections.
    #[must_use]
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        self.links.iter().all(|link| link.is_settled(now))
    }

    /// An offer that does not connect in time leaves nothing but a free decoder.
    fn drop_late_offers(&mut self, now: Instant) {
        let limit = self.shared.timeouts.offer;
        let (current, dropped) = (self.current, &mut self.dropped);
        self.links.retain(|link| {
            let pending = link.connected.is_none() && Some(link.number) != current;
            let late =
                pending && (link.closed.is_some() || now.saturating_duration_since(link.offered) >= limit);
            let done = link.is_over(now) || (link.closed.is_some() && Some(link.number) != current);
            if late || done {
                dropped.push(link.number);
            }
            !(late || done)
        });
    }

    /// Closed without a word for as long as is allowed, or nothing heard for as long as is allowed. A pending offer stops these clocks, for as
    /// long as it may take; a connection that went away by its time is dropped by [`Node::drop_late_offers`].
    fn is_gone(&self, now: Instant) -> bool {
        if self.links.iter().any(|l| l.connected.is_none() && Some(l.number) != self.current) {
            return false;
        }
        let timeouts = &self.shared.timeouts;
        let Some(link) = self.links.iter().find(|l| Some(l.number) == self.current) else { return true };
        let since = |at: Instant| now.saturating_duration_since(at);
        if let Some(closed) = link.closed {
            return since(closed) >= timeouts.closed;
        }
        link.last_heard().or(link.connected).is_some_and(|at| since(at) >= timeouts.silence)
    }

    fn fail_late_tools(&mut self, now: Instant) {
        while let Some(at) = self.client_tools.iter().position(|t| now >= t.until) {
            let call: ToolCallId = self.client_tools.swap_remove(at).call;
            self.feed(now, Input::ToolResult { call, result: Err("timeout".into()) });
        }
    }

    /// What sounds leaves, then every connection is hung up, then it is over.
    fn finish(&mut self, now: Instant) -> Fate {
        let waits = self.ended.is_some_and(|at| now.saturating_duration_since(at) < LAST_SOUND);
        if waits && self.origin.is_some() && !self.speaking.playout.is_silent() && self.current_is_up() {
            return Fate::Lives;
        }
        self.asked.clear();
        self.trace = None;
        for link in &mut self.links {
            if link.closed.is_none() {
                link.hang_up(now);
            }
        }
        let current_closed = |l: &crate::link::Link| l.closed.is_some();
        if self.links.iter().all(|l| l.is_over(now) || current_closed(l)) { Fate::Over } else { Fate::Lives }
    }

    fn current_is_up(&self) -> bool {
        self.links.iter().any(|l| Some(l.number) == self.current && l.is_up())
    }
}
