//! Connections to LiveKit rooms: their sockets, and the signals of the server.
//!
//! Each has a socket of its own, which is read only when the system reports datagrams. All are in one
//! poll, which itself wakes the thread like the thread's own socket does.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use conversation::id::ConversationId;
use engine_api::OfferError;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use models::panic_isolation::catch_panic;

use super::read_budget::{ReadBudget, UDP_DATAGRAMS};
use super::{ConnectionRef, MAX_CONNECTIONS_PER_CALL, MediaThread, ROOMS_TOKEN};
use crate::call::pending_call::CallHandover;
use crate::connection::Connection;
use crate::messages::{ConnectedCall, RoomRequest};
use crate::thread;
use crate::transport::ConnectionReply;
use crate::transport::livekit::room_peer::RoomSignal;
use crate::transport::livekit::room_socket::{ReceiveBuffers, RoomSocket};

/// Datagrams of one read of a socket.
const DATAGRAMS_PER_READ: usize = 32;

/// The sockets of a thread's rooms.
#[derive(Default)]
pub(super) struct RoomSockets {
    open: Option<OpenSockets>,
    /// Whether their poll wakes the thread.
    wakes_thread: bool,
}

struct OpenSockets {
    poll: Poll,
    events: Events,
    buffers: ReceiveBuffers,
    connections: HashMap<Token, ConnectionRef>,
    next_token: usize,
    /// Sockets that were not read to the end.
    unread: Vec<Token>,
}

impl RoomSockets {
    /// Sets whether the sockets wake the thread, or wait for its next tick.
    pub(super) fn wake_thread(&mut self, registry: &Registry, wakes: bool) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let poll = open.poll.as_raw_fd();
        if wakes != self.wakes_thread {
            match wakes {
                true => {
                    registry.register(&mut SourceFd(&poll), ROOMS_TOKEN, Interest::READABLE)?;
                }
                false => registry.deregister(&mut SourceFd(&poll))?,
            }
            self.wakes_thread = wakes;
        }
        Ok(())
    }

    fn add(&mut self, socket: &mut RoomSocket, connection: ConnectionRef) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenSockets {
                poll: Poll::new()?,
                events: Events::with_capacity(256),
                buffers: ReceiveBuffers::default(),
                connections: HashMap::new(),
                next_token: 0,
                unread: Vec::new(),
            }),
        };
        let token = Token(open.next_token);
        open.next_token += 1;
        open.poll.registry().register(socket, token, Interest::READABLE)?;
        open.connections.insert(token, connection);
        Ok(())
    }
}

impl MediaThread {
    /// Reads the datagrams of the rooms. Returns whether there may be more.
    pub(super) fn read_room_sockets(&mut self, now: Instant, budget: &ReadBudget<'_>) -> bool {
        let Some(mut open) = self.rooms.open.take_if(|open| !open.connections.is_empty()) else {
            return false;
        };
        // It never waits. After an error, the sockets are read at the next step.
        let polled = open.poll.poll(&mut open.events, Some(Duration::ZERO));
        let ready = open.events.iter().map(|event| event.token()).filter(|_| polled.is_ok());
        let mut tokens = std::mem::take(&mut open.unread);
        tokens.extend(ready);
        tokens.sort_unstable();
        tokens.dedup();
        let mut count = 0;
        for token in tokens {
            let Some(target) = open.connections.get(&token).copied() else { continue };
            if !self.calls.contains_key(&target.call) {
                // Its socket was closed with it.
                open.connections.remove(&token);
                continue;
            }
            loop {
                if !budget.admits(UDP_DATAGRAMS, count) {
                    open.unread.push(token);
                    break;
                }
                count += DATAGRAMS_PER_READ;
                let buffers = &mut open.buffers;
                let read = self.with_call(now, target.call, |call| {
                    call.read_room_socket(now, target.connection, buffers)
                });
                let (more, refused) = read.unwrap_or_default();
                self.meter.stats().unknown_datagrams.fetch_add(refused, Relaxed);
                if !more {
                    break;
                }
            }
            self.touch(target.call);
        }
        thread::set_current_call(None);
        let more = !open.unread.is_empty();
        self.rooms.open = Some(open);
        more
    }

    /// Adds a connection to a room to its call, and starts the call if it does not run.
    pub(super) fn open_room(&mut self, now: Instant, request: RoomRequest) {
        let RoomRequest { conversation, peer, mut socket, new_call, reply } = request;
        let outcome = (|| {
            let existing = self.by_conversation.get(&conversation).copied();
            let key = match (existing, new_call) {
                (Some(key), _) => key,
                (None, Some(new_call)) => {
                    let ConnectedCall { setup, early_commands, presence } = *new_call;
                    let key = setup.id;
                    let handover =
                        CallHandover { early_commands, presence, ..CallHandover::default() };
                    let started = catch_panic(|| self.insert_call(now, *setup, handover));
                    if !matches!(started, Some(Ok(()))) {
                        tracing::error!("cannot start a call");
                        let error = OfferError::NoCapacity("the call cannot start".into());
                        return ConnectionReply::Rejected(error);
                    }
                    key
                }
                (None, None) => return ConnectionReply::NotRunning,
            };
            let Some(call) = self.calls.get_mut(&key) else {
                return ConnectionReply::NotRunning;
            };
            if call.has_ended() {
                return ConnectionReply::Rejected(OfferError::Ended);
            }
            if call.connection_numbers().count() >= MAX_CONNECTIONS_PER_CALL {
                call.drop_oldest_connection();
            }
            let mut registered = Ok(());
            let number = call.add_connection(|number| {
                let connection = ConnectionRef { call: key, connection: number };
                registered = self.rooms.add(&mut socket, connection);
                Connection::room(number, peer, socket, now)
            });
            if let Err(error) = registered {
                tracing::error!(%error, connection = number, "cannot poll the socket of a room");
            }
            self.touch(key);
            ConnectionReply::Accepted
        })();
        // The engine may have stopped waiting. The connection then ends with its requests.
        let _ = reply.send(outcome);
    }

    /// Passes a signal of the LiveKit server to its connection.
    pub(super) fn handle_room_signal(
        &mut self,
        now: Instant,
        conversation: ConversationId,
        connection: &str,
        signal: RoomSignal,
    ) {
        let Some(key) = self.by_conversation.get(&conversation).copied() else { return };
        self.with_call(now, key, |call| call.handle_room_signal(now, connection, signal));
        self.touch(key);
    }
}
