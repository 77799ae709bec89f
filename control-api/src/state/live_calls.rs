//! Conversations between their states, in memory: offers that may still connect, the connections
//! that resulted, calls that count for a quota, and ends that are not stored yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conversation::id::ConversationId;
use engine_api::CallConfig;

use crate::store::conversation::Row;

/// Conversations with an offer that was answered and is not connected yet.
pub(crate) struct PendingOffers {
    /// Time that an offer has to connect.
    offer_timeout: Duration,
    deadlines: Mutex<HashMap<ConversationId, Instant>>,
}

impl PendingOffers {
    pub(crate) fn new(offer_timeout: Duration) -> Self {
        Self { offer_timeout, deadlines: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Instant>> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: ConversationId) {
        let now = Instant::now();
        let mut map = self.lock();
        map.retain(|_, until| *until > now);
        map.insert(id, now + self.offer_timeout);
    }

    /// Whether an offer of this conversation may still connect.
    pub(crate) fn contains(&self, id: ConversationId) -> bool {
        self.lock().get(&id).is_some_and(|until| *until > Instant::now())
    }

    /// The offer connected, or the conversation is over.
    pub(crate) fn remove(&self, id: ConversationId) {
        self.lock().remove(&id);
    }
}

/// The connections that resulted from a conversation's offers: the resources that its clients may
/// address.
#[derive(Default)]
pub(crate) struct Connections(Mutex<HashMap<ConversationId, (Vec<String>, RunningCall)>>);

/// What a new connection of a running call needs, so that it can move while the store does not
/// respond.
#[derive(Clone)]
pub(crate) struct RunningCall {
    /// As it was when the last offer was accepted.
    pub(crate) row: Row,
    pub(crate) config: Arc<CallConfig>,
}

impl Connections {
    /// Older ones have been replaced by then.
    const MAX_PER_CONVERSATION: usize = 8;

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, (Vec<String>, RunningCall)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: ConversationId, connection: &str, call: RunningCall) {
        let mut map = self.lock();
        let (known, _) = map.entry(id).or_insert_with(|| (Vec::new(), call));
        if known.len() == Self::MAX_PER_CONVERSATION {
            known.remove(0);
        }
        known.push(connection.to_owned());
    }

    pub(crate) fn contains(&self, id: ConversationId, connection: &str) -> bool {
        self.lock().get(&id).is_some_and(|(known, _)| known.iter().any(|one| one == connection))
    }

    /// A call with a connection.
    pub(crate) fn running_call(&self, id: ConversationId) -> Option<RunningCall> {
        self.lock().get(&id).map(|(_, call)| call.clone())
    }

    /// The conversation is over.
    pub(crate) fn remove(&self, id: ConversationId) {
        self.lock().remove(&id);
    }
}

/// Conversations that were ended while the store rejected writes or was slow. The client received
/// an error and may repeat the request.
#[derive(Default)]
pub(crate) struct UnconfirmedEnds(Mutex<HashSet<ConversationId>>);

impl UnconfirmedEnds {
    /// Enough for the requests of one outage.
    const MAX_ENTRIES: usize = 4_096;

    fn lock(&self) -> MutexGuard<'_, HashSet<ConversationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: ConversationId) {
        let mut set = self.lock();
        if set.len() >= Self::MAX_ENTRIES {
            set.clear();
        }
        set.insert(id);
    }

    /// Whether the conversation is one of them.
    pub(crate) fn contains(&self, id: ConversationId) -> bool {
        self.lock().contains(&id)
    }

    /// Whether the conversation is one of them; removes it.
    pub(crate) fn take(&self, id: ConversationId) -> bool {
        self.lock().remove(&id)
    }
}

/// Calls whose offer was accepted but that are not running in the store yet, by conversation: the
/// workspace, and the deadline for the connection.
#[derive(Default)]
pub(crate) struct ConnectingCalls(Mutex<HashMap<String, (String, Instant)>>);

impl ConnectingCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Conversations of a workspace whose calls may still connect.
    pub(crate) fn in_workspace(&self, workspace: &str) -> HashSet<String> {
        let now = Instant::now();
        let mut map = self.lock();
        map.retain(|_, (_, until)| *until > now);
        map.iter().filter(|(_, (whose, _))| whose == workspace).map(|(id, _)| id.clone()).collect()
    }

    /// Adds a conversation if its workspace has fewer than `max` others. The others are all in
    /// `held`, and those added since `connecting` was read. `None` if the quota is used up;
    /// otherwise whether the conversation is new here.
    pub(crate) fn reserve(
        &self,
        row: &Row,
        until: Instant,
        max: usize,
        known: &HashSet<String>,
        held: &HashSet<String>,
    ) -> Option<bool> {
        let mut map = self.lock();
        let since =
            map.iter().filter(|(id, (whose, _))| *whose == row.workspace && !known.contains(*id));
        let others =
            since.map(|(id, _)| id).chain(held).filter(|id| **id != row.id).collect::<HashSet<_>>();
        if others.len() >= max {
            return None;
        }
        Some(map.insert(row.id.clone(), (row.workspace.clone(), until)).is_none())
    }

    /// Removes a conversation whose offer was rejected.
    pub(crate) fn release(&self, id: &str) {
        self.lock().remove(id);
    }
}
