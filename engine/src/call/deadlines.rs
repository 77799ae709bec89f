//! Deadlines of a call and its end: the timeouts after which the user counts as gone, and the
//! hang-up.

use std::time::{Duration, Instant};

use conversation::input::{Input, ToolCallId};

use super::Call;
use crate::connection::Connection;

/// Limit for audio that still plays at the end of a call: a fade-out or the last frame of a
/// message.
const FINAL_AUDIO_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit for the STT's last report of its use. A hosted STT closes its connection within 0.9 s.
const FINAL_USAGE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// How long an agent waits in an empty room for the first person, as LiveKit's own rooms do.
const EMPTY_ROOM_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether the media thread must continue to serve a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// The call continues.
    Running,
    /// The call has ended and has nothing left to send.
    Finished,
}

impl Call {
    /// Serves what is due: the conversation, the connections, the timeouts of the user.
    pub(crate) fn check_deadlines(&mut self, now: Instant) -> Lifecycle {
        self.drop_expired_offers(now);
        if self.ended_at.is_some() {
            return self.finish(now);
        }
        if self.started_at.is_none() {
            // A call that has not started consists only of its offers.
            return if self.connections.is_empty() {
                Lifecycle::Finished
            } else {
                Lifecycle::Running
            };
        }
        self.tick_conversation(now);
        self.fail_expired_tools(now);
        if self.is_user_gone(now) {
            if self.config.reconnect_timeout.is_some() {
                self.media_lost(now);
            } else {
                self.user_left(now);
            }
        }
        if self.ended_at.is_some() { self.finish(now) } else { Lifecycle::Running }
    }

    /// Serves the conversation's own deadlines. Called before a tick's audio is sent, so that audio
    /// that must end does not play for one more frame.
    pub(crate) fn tick_conversation(&mut self, now: Instant) {
        let runs = self.started_at.is_some() && self.ended_at.is_none();
        if runs
            && self
                .conversation
                .poll_timeout()
                .is_some_and(|(at, _)| at <= self.conversation_time(now))
        {
            self.handle_input(now, Input::Tick);
        }
    }

    /// The latest time at which [`Call::check_deadlines`] or [`Call::poll_connections`] is due.
    /// Excludes what the thread's tick serves: audio, and all timeouts of seconds.
    #[must_use]
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let own = self.started_at.and_then(|origin| {
            let (at, _) = self.conversation.poll_timeout().filter(|_| self.ended_at.is_none())?;
            Some(origin + Duration::from_micros(at.as_micros()))
        });
        let connections = self
            .connections
            .iter()
            .filter(|connection| !connection.is_past_handshake(now))
            .filter_map(Connection::next_deadline)
            .min();
        [own, connections].into_iter().flatten().min()
    }

    /// Whether serving all connections once per tick is soon enough.
    #[must_use]
    pub(crate) fn is_past_handshake(&self, now: Instant) -> bool {
        self.connections.iter().all(|connection| connection.is_past_handshake(now))
    }

    /// Drops offers that did not connect in time, and connections that are closed or finished.
    /// Their decoders are freed with them.
    fn drop_expired_offers(&mut self, now: Instant) {
        let timeouts = self.context.timeouts;
        let wait_for_people =
            if self.started_at.is_some() { timeouts.silence } else { EMPTY_ROOM_TIMEOUT };
        let (current, dropped) = (self.current_connection, &mut self.dropped_connections);
        self.connections.retain(|connection| {
            let pending = connection.connected_at.is_none() && Some(connection.number) != current;
            let limit =
                if connection.waits_for_people() { wait_for_people } else { timeouts.offer };
            let late = pending
                && (connection.closed_at.is_some()
                    || now.saturating_duration_since(connection.offered_at) >= limit);
            let done = connection.is_finished(now)
                || (connection.closed_at.is_some() && Some(connection.number) != current);
            if late || done {
                dropped.push(connection.number);
            }
            !(late || done)
        });
    }

    /// Whether the current connection has been closed by the client for `timeouts.closed`, or has
    /// received nothing for `timeouts.silence`. [`engine_api::CallConfig::reconnect_timeout`]
    /// replaces both. A pending offer suspends both timeouts until it connects or expires. The user is also gone if [`Call::drop_expired_offers`] has dropped the
    /// current connection.
    fn is_user_gone(&self, now: Instant) -> bool {
        if self
            .connections
            .iter()
            .filter(|c| c.connected_at.is_none() && !c.waits_for_people())
            .any(|c| Some(c.number) != self.current_connection)
        {
            return false;
        }
        let wait = self.config.reconnect_timeout;
        let timeouts = &self.context.timeouts;
        let Some(connection) =
            self.connections.iter().find(|c| Some(c.number) == self.current_connection)
        else {
            return true;
        };
        let since = |at: Instant| now.saturating_duration_since(at);
        if let Some(closed) = connection.closed_at {
            return since(closed) >= wait.unwrap_or(timeouts.closed);
        }
        connection
            .last_received()
            .or(connection.connected_at)
            .is_some_and(|at| since(at) >= wait.unwrap_or(timeouts.silence))
    }

    fn fail_expired_tools(&mut self, now: Instant) {
        while let Some(at) = self.client_tools.iter().position(|t| now >= t.deadline) {
            let call: ToolCallId = self.client_tools.swap_remove(at).call;
            self.handle_input(now, Input::ToolResult { call, result: Err("timeout".into()) });
        }
    }

    /// Ends the call in three steps: audio plays out, then every connection is hung up, then the
    /// call is finished, once the STT has reported its use.
    fn finish(&mut self, now: Instant) -> Lifecycle {
        let is_within = |limit| {
            self.started_at.is_some()
                && self.ended_at.is_some_and(|at| now.saturating_duration_since(at) < limit)
        };
        let awaits_usage = self.awaits_stt_usage && is_within(FINAL_USAGE_TIMEOUT);
        if is_within(FINAL_AUDIO_TIMEOUT)
            && !self.audio_output.playout.is_silent()
            && self.is_current_up()
        {
            return Lifecycle::Running;
        }
        self.generations.clear();
        for connection in &mut self.connections {
            if connection.closed_at.is_none() {
                connection.hang_up(now);
            }
        }
        let current_closed = |c: &crate::connection::Connection| c.closed_at.is_some();
        if !awaits_usage && self.connections.iter().all(|c| c.is_finished(now) || current_closed(c))
        {
            Lifecycle::Finished
        } else {
            Lifecycle::Running
        }
    }

    fn is_current_up(&self) -> bool {
        self.connections.iter().any(|c| Some(c.number) == self.current_connection && c.is_up())
    }
}
