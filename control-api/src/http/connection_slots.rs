//! Slots for HTTP connections: which connection gets one, and which one is evicted when none is
//! free.
//!
//! - An address holds at most a quarter of the slots. One more connection evicts the connection of
//!   the same address that has been idle longest.
//! - When all slots are taken, the connection that has been idle longest is evicted.
//! - When none of them is idle, a connection gets one of [`RESERVED_SLOTS`] further slots, by the
//!   same rules.
//!
//! A connection is idle while it has no request: before the first one, while a header arrives, and
//! between two requests. A request lasts until its response is sent.
//!
//! ```text
//! waiting -- acquire, no slot free or idle ------------------> waiting
//! waiting -- acquire, address share in use: NoSlot ----------> rejected
//! waiting -- acquire, slot free or taken from an idle one ---> idle
//! idle ----- start_request ----------------------------------> active
//! active --- finish_request, last request -------------------> idle
//! idle ----- slot given to another connection ---------------> evicted
//! idle, active -- SlotPermit dropped ------------------------> freed
//! ```

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

/// Slots in addition to the regular ones.
pub(crate) const RESERVED_SLOTS: usize = 32;
/// One address may hold this fraction of the slots: one in four.
const ADDRESS_SHARE_DIVISOR: usize = 4;

/// Which requests a slot serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SlotKind {
    /// Every request.
    Regular,
    /// One short request of a health check or a call.
    Reserved,
}

/// Why no slot is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoSlot {
    /// The address holds its share, and all of its connections are active.
    AddressShareUsed,
    /// All slots are taken by active connections.
    AllInUse,
}

/// All slots of a listener.
pub(crate) struct ConnectionSlots {
    table: Mutex<SlotTable>,
    /// Notified when a slot is freed or its connection becomes idle.
    changed: Notify,
}

struct SlotTable {
    /// Number of regular slots; at least one.
    regular_slots: usize,
    /// Next number, for the id of a connection or the start of an idle period. Only the order
    /// counts.
    next: u64,
    connections: HashMap<u64, Connection>,
    /// Number of connections by slot kind.
    used: [usize; 2],
    /// Number of connections per counted address.
    held_by_address: HashMap<(SlotKind, IpAddr), usize>,
    /// Idle connections, ordered by the start of their idle period.
    idle: BTreeMap<(SlotKind, u64), u64>,
    /// The same per address.
    idle_by_address: BTreeMap<(SlotKind, IpAddr, u64), u64>,
}

struct Connection {
    kind: SlotKind,
    /// `None`: not counted.
    address: Option<IpAddr>,
    requests: usize,
    idle_since: Option<u64>,
    /// Dropped to evict the connection.
    _close_sender: oneshot::Sender<Infallible>,
}

impl SlotTable {
    fn acquire(&mut self, address: Option<IpAddr>) -> Result<(GrantedSlot, SlotKind), NoSlot> {
        let mut full = NoSlot::AllInUse;
        for (kind, max_slots) in
            [(SlotKind::Regular, self.regular_slots), (SlotKind::Reserved, RESERVED_SLOTS)]
        {
            let greedy = address.filter(|a| {
                self.held_count(kind, *a) >= (max_slots / ADDRESS_SHARE_DIVISOR).max(1)
            });
            let leaves = if let Some(address) = greedy {
                full = NoSlot::AddressShareUsed;
                let own = self
                    .idle_by_address
                    .range((kind, address, 0)..=(kind, address, u64::MAX))
                    .next();
                own.map(|(_, id)| *id)
            } else if self.used[kind as usize] >= max_slots {
                self.idle.range((kind, 0)..=(kind, u64::MAX)).next().map(|(_, id)| *id)
            } else {
                return Ok((self.occupy(kind, address), kind));
            };
            if let Some(id) = leaves {
                self.remove(id);
                return Ok((self.occupy(kind, address), kind));
            }
        }
        Err(full)
    }

    fn held_count(&self, kind: SlotKind, address: IpAddr) -> usize {
        self.held_by_address.get(&(kind, address)).copied().unwrap_or(0)
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn occupy(&mut self, kind: SlotKind, address: Option<IpAddr>) -> GrantedSlot {
        let id = self.next_number();
        let (_close_sender, close_receiver) = oneshot::channel();
        self.connections
            .insert(id, Connection { kind, address, requests: 0, idle_since: None, _close_sender });
        self.used[kind as usize] += 1;
        if let Some(address) = address {
            *self.held_by_address.entry((kind, address)).or_default() += 1;
        }
        self.mark_idle(id);
        GrantedSlot { id, close_receiver }
    }

    /// Does nothing if the connection is already removed.
    fn remove(&mut self, id: u64) {
        self.mark_active(id);
        let Some(Connection { kind, address, .. }) = self.connections.remove(&id) else { return };
        self.used[kind as usize] -= 1;
        let Some(address) = address else { return };
        if let Some(held) = self.held_by_address.get_mut(&(kind, address)) {
            *held -= 1;
            if *held == 0 {
                self.held_by_address.remove(&(kind, address));
            }
        }
    }

    /// Marks the connection as idle from now on.
    fn mark_idle(&mut self, id: u64) {
        let now = self.next_number();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.idle_since = Some(now);
        self.idle.insert((connection.kind, now), id);
        if let Some(address) = connection.address {
            self.idle_by_address.insert((connection.kind, address, now), id);
        }
    }

    /// Marks the connection as not idle.
    fn mark_active(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(since) = connection.idle_since.take() else { return };
        self.idle.remove(&(connection.kind, since));
        if let Some(address) = connection.address {
            self.idle_by_address.remove(&(connection.kind, address, since));
        }
    }

    /// Starts a request; false if the connection was evicted.
    fn start_request(&mut self, id: u64) -> bool {
        self.mark_active(id);
        self.connections.get_mut(&id).map(|connection| connection.requests += 1).is_some()
    }

    fn finish_request(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.requests -= 1;
        if connection.requests == 0 {
            self.mark_idle(id);
        }
    }
}

/// Id of a connection, and the receiver that ends when it is evicted.
struct GrantedSlot {
    id: u64,
    close_receiver: oneshot::Receiver<Infallible>,
}

impl ConnectionSlots {
    /// `regular_slots` slots, at least one, and the reserved ones.
    pub(crate) fn new(regular_slots: usize) -> Arc<Self> {
        let table = SlotTable {
            regular_slots: regular_slots.max(1),
            next: 0,
            connections: HashMap::new(),
            used: [0; 2],
            held_by_address: HashMap::new(),
            idle: BTreeMap::new(),
            idle_by_address: BTreeMap::new(),
        };
        Arc::new(Self { table: Mutex::new(table), changed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a connection of `address` (`None` = not counted). Waits while all slots are in
    /// use. `None` if the address uses its whole share: other addresses must not wait behind it.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Option<(SlotPermit, EvictionSignal)> {
        loop {
            // Created before the check, so that no change is missed.
            let changed = self.changed.notified();
            let found = self.lock().acquire(address);
            match found {
                Ok((place, kind)) => {
                    let taken = SlotPermit { slots: Arc::clone(self), id: place.id, kind };
                    return Some((taken, EvictionSignal(place.close_receiver)));
                }
                Err(NoSlot::AddressShareUsed) => return None,
                Err(NoSlot::AllInUse) => changed.await,
            }
        }
    }

    /// Whether all regular slots are taken.
    pub(crate) fn is_full(&self) -> bool {
        let table = self.lock();
        table.used[SlotKind::Regular as usize] >= table.regular_slots
    }

    /// Waits until every connection has ended.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.lock().connections.is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// Permit for a slot; dropping it frees the slot.
pub(crate) struct SlotPermit {
    slots: Arc<ConnectionSlots>,
    id: u64,
    pub(crate) kind: SlotKind,
}

impl SlotPermit {
    /// Starts a request. The connection is active until the guard is dropped. `None` if it was just
    /// evicted.
    pub(crate) fn start_request(&self) -> Option<ActiveRequest> {
        let is_open = self.slots.lock().start_request(self.id);
        is_open.then(|| ActiveRequest {
            slots: Arc::clone(&self.slots),
            id: self.id,
            stays_active: false,
        })
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.slots.lock().remove(self.id);
        self.slots.changed.notify_waiters();
    }
}

/// An active request.
pub(crate) struct ActiveRequest {
    slots: Arc<ConnectionSlots>,
    id: u64,
    /// Whether the connection stays active after the request.
    stays_active: bool,
}

impl ActiveRequest {
    /// Keeps the connection active until it is closed: it serves another protocol from now on.
    pub(crate) fn keep_connection(mut self) {
        self.stays_active = true;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.stays_active {
            return;
        }
        self.slots.lock().finish_request(self.id);
        self.slots.changed.notify_waiters();
    }
}

/// Signals eviction to a connection.
pub(crate) struct EvictionSignal(oneshot::Receiver<Infallible>);

impl EvictionSignal {
    /// Completes when the connection's slot was given to another connection.
    pub(crate) async fn evicted(&mut self) {
        // No value is ever sent: the end of the channel is the signal.
        let _ = (&mut self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// A slot that is available at once, or `None`.
    #[track_caller]
    fn try_acquire(
        slots: &Arc<ConnectionSlots>,
        address: Option<IpAddr>,
    ) -> Option<(SlotPermit, EvictionSignal)> {
        slots.acquire(address).now_or_never().flatten()
    }

    #[track_caller]
    fn expect_slot(
        places: &Arc<ConnectionSlots>,
        address: Option<IpAddr>,
        kind: SlotKind,
    ) -> (SlotPermit, EvictionSignal) {
        let place = try_acquire(places, address).expect("a place");
        assert_eq!(place.0.kind, kind);
        place
    }

    fn is_evicted((_, signal): &mut (SlotPermit, EvictionSignal)) -> bool {
        signal.evicted().now_or_never().is_some()
    }

    #[test]
    fn an_address_replaces_its_own_idle_connection_beyond_a_quarter() {
        let places = ConnectionSlots::new(8);
        let mut other = expect_slot(&places, address(9), SlotKind::Regular);
        let mut first = expect_slot(&places, address(1), SlotKind::Regular);
        let mut second = expect_slot(&places, address(1), SlotKind::Regular);
        // The first connection has served a request since, so the second one has been idle longer.
        drop(first.0.start_request().unwrap());
        let mut third = expect_slot(&places, address(1), SlotKind::Regular);
        assert!(
            is_evicted(&mut second) && !is_evicted(&mut first),
            "the one that has been idle longest"
        );
        let in_use = [first.0.start_request().unwrap(), third.0.start_request().unwrap()];
        let fourth = expect_slot(&places, address(1), SlotKind::Reserved);
        assert!(!is_evicted(&mut first) && !is_evicted(&mut third) && !is_evicted(&mut other));
        drop((in_use, fourth));
        expect_slot(&places, address(1), SlotKind::Regular);
        assert!(is_evicted(&mut first) && !is_evicted(&mut other));
    }

    #[test]
    fn an_uncounted_client_has_no_share_limit() {
        let places = ConnectionSlots::new(8);
        let mut all: Vec<_> =
            (0..8).map(|_| expect_slot(&places, None, SlotKind::Regular)).collect();
        assert!(!all.iter_mut().any(is_evicted) && places.is_full());
    }

    #[test]
    fn a_full_server_closes_the_connection_that_is_idle_longest() {
        let places = ConnectionSlots::new(4);
        let mut all: Vec<_> =
            (1..=4).map(|n| expect_slot(&places, address(n), SlotKind::Regular)).collect();
        let _busy = all[0].0.start_request().unwrap();
        drop(all[1].0.start_request());
        let _fifth = expect_slot(&places, address(5), SlotKind::Regular);
        let leave: Vec<bool> = all.iter_mut().map(is_evicted).collect();
        assert_eq!(
            leave,
            [false, false, true, false],
            "the first is busy, the second was busy a moment ago"
        );
        assert!(
            all[2].0.start_request().is_none(),
            "a request on an evicted connection does not start"
        );
        drop(all.remove(2));
        assert!(places.is_full(), "a slot that was reassigned is not released a second time");
    }

    #[test]
    fn reserved_slots_are_used_while_all_others_are_busy() {
        let places = ConnectionSlots::new(4);
        let all: Vec<_> = (0..4).map(|_| expect_slot(&places, None, SlotKind::Regular)).collect();
        let _busy: Vec<_> = all.iter().map(|(taken, _)| taken.start_request().unwrap()).collect();
        // The share of an address applies to reserved slots too.
        let mut greedy: Vec<_> =
            (0..8).map(|_| expect_slot(&places, address(1), SlotKind::Reserved)).collect();
        let ninth = expect_slot(&places, address(1), SlotKind::Reserved);
        assert!(is_evicted(&mut greedy[0]) && !is_evicted(&mut greedy[1]));
        drop(greedy.remove(0));
        greedy.push(ninth);
        let requests: Vec<_> =
            greedy.iter().map(|(taken, _)| taken.start_request().unwrap()).collect();
        assert!(try_acquire(&places, address(1)).is_none(), "it uses its whole share");
        let mut rest: Vec<_> =
            (8..RESERVED_SLOTS).map(|_| expect_slot(&places, None, SlotKind::Reserved)).collect();
        let _health = expect_slot(&places, address(2), SlotKind::Reserved);
        assert!(
            is_evicted(&mut rest[0]) && !is_evicted(&mut rest[1]),
            "an idle connection is replaced"
        );
        drop(requests);
    }

    #[tokio::test]
    async fn a_connection_waits_while_all_slots_are_busy() {
        let places = ConnectionSlots::new(1);
        let all: Vec<_> = std::iter::repeat_with(|| {
            try_acquire(&places, None).map(|(taken, leave)| (taken.start_request(), taken, leave))
        })
        .take(1 + RESERVED_SLOTS)
        .collect::<Option<_>>()
        .unwrap();
        let mut waits = Box::pin(places.acquire(None));
        assert!((&mut waits).now_or_never().is_none());
        let mut gone = Box::pin(places.wait_until_empty());
        assert!((&mut gone).now_or_never().is_none());
        drop(all);
        let (taken, leave) = waits.await.unwrap();
        assert_eq!(taken.kind, SlotKind::Regular);
        assert!((&mut gone).now_or_never().is_none());
        drop((taken, leave));
        gone.await;
        assert!(
            !places.is_full()
                && places.lock().idle.is_empty()
                && places.lock().held_by_address.is_empty()
        );
    }
}
