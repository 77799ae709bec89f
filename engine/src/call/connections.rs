//! A call's connections: the one that carries it, and offers that try to take over.

use std::time::Instant;

use conversation::event::{EndReason, Event};
use conversation::input::{Command, Input};
use engine_api::HangUp;

use super::Call;
use crate::connection::Connection;

impl Call {
    /// Adds a connection that may take over the call. Returns its number.
    pub(crate) fn add_connection(&mut self, make: impl FnOnce(u32) -> Connection) -> u32 {
        let number = self.next_connection;
        self.next_connection += 1;
        self.connections.push(make(number));
        number
    }

    /// Makes a connection the one that carries the call. Returns its predecessor.
    pub(super) fn make_current(&mut self, number: u32) -> Option<u32> {
        let previous = self.current_connection.replace(number);
        self.move_captions(previous, number);
        previous
    }

    /// Drops one connection that does not carry the call, to make room for a newer offer: the
    /// oldest pending one, else the oldest that is closing.
    pub(crate) fn drop_oldest_connection(&mut self) {
        let others = self.connections.iter().filter(|c| Some(c.number) != self.current_connection);
        let Some(oldest) =
            others.min_by_key(|c| (c.connected_at.is_some(), c.number)).map(|c| c.number)
        else {
            return;
        };
        self.connections.retain(|c| c.number != oldest);
        self.dropped_connections.push(oldest);
    }

    /// Drops the connection of an offer that was evicted for a newer one.
    pub(crate) fn evict_offer(&mut self, offer: u64) {
        let Some(number) = self.connections.iter().find(|c| c.is_offer(offer)).map(|c| c.number)
        else {
            return;
        };
        self.connections.retain(|c| c.number != number);
        self.dropped_connections.push(number);
    }

    /// The connection with this id.
    pub(crate) fn connection_by_id(&mut self, id: &str) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|c| c.id() == id)
    }

    /// Numbers of the call's connections.
    pub(crate) fn connection_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.iter().map(|c| c.number)
    }

    /// Numbers of the connections dropped since the last call of this method.
    pub(crate) fn take_dropped_connections(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.dropped_connections.drain(..)
    }

    /// The client closes one of its connections. This means that the user leaves, if the connection
    /// carries the call.
    pub(crate) fn hang_up(&mut self, now: Instant, id: &str) -> HangUp {
        let Some(connection) = self.connections.iter_mut().find(|c| c.id() == id) else {
            return HangUp::NotFound;
        };
        let number = connection.number;
        if self.current_connection == Some(number) {
            self.user_left(now);
        } else {
            connection.hang_up(now);
            if self.started_at.is_none() && self.connections.iter().all(|c| c.number == number) {
                self.ended_at = Some(now);
                return HangUp::LastOffer;
            }
        }
        HangUp::Closed
    }

    /// The page or the socket that carries a meeting did not come back.
    pub(super) fn media_lost(&mut self, now: Instant) {
        let why = "The connection to the meeting was lost and did not come back.";
        self.end_with_error(now, why.to_owned());
    }

    /// The call has lost what carries it. `why`: one sentence for its record.
    pub(super) fn end_with_error(&mut self, now: Instant, why: String) {
        if self.ended_at.is_none() && !std::mem::replace(&mut self.is_leaving, true) {
            self.inputs.push_back(Input::ExternalEvent(Event::Warning { text: why }));
            let stop = Command::Stop { reason: EndReason::Error, exit_message: false };
            self.submit_command(now, stop, None);
        }
    }

    /// The user leaves the call.
    pub(super) fn user_left(&mut self, now: Instant) {
        if self.ended_at.is_none() && !std::mem::replace(&mut self.is_leaving, true) {
            self.queue_last_departure();
            self.submit_command(now, Command::Leave, None);
        }
    }
}
