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
pub(crate) const RESERVED: usize = 32;
/// One address may hold this fraction of the slots: one in four.
const SHARE: usize = 4;

/// Which requests a slot serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Every request.
    Usual,
    /// One short request of a health check or a call.
    Reserved,
}

/// Why no slot is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// The address holds its share, and all of its connections are active.
    Share,
    /// All slots are taken by active connections.
    All,
}

/// All slots of a listener.
pub(crate) struct Places {
    table: Mutex<Table>,
    /// Notified when a slot is freed or its connection becomes idle.
    changed: Notify,
}

struct Table {
    /// Number of regular slots; at least one.
    usual: usize,
    /// Next number, for the id of a connection or the start of an idle period. Only the order
    /// counts.
    next: u64,
    connections: HashMap<u64, Connection>,
    /// Number of connections by slot kind.
    used: [usize; 2],
    /// Number of connections per counted address.
    held: HashMap<(Kind, IpAddr), usize>,
    /// Idle connections, ordered by the start of their idle period.
    idle: BTreeMap<(Kind, u64), u64>,
    /// The same per address.
    idle_of: BTreeMap<(Kind, IpAddr, u64), u64>,
}

struct Connection {
    kind: Kind,
    /// `None`: not counted.
    address: Option<IpAddr>,
    requests: usize,
    since: Option<u64>,
    /// Dropped to evict the connection.
    _stays: oneshot::Sender<Infallible>,
}

impl Table {
    fn take(&mut self, address: Option<IpAddr>) -> Result<(Place, Kind), Full> {
        let mut full = Full::All;
        for (kind, most) in [(Kind::Usual, self.usual), (Kind::Reserved, RESERVED)] {
            let greedy = address.filter(|a| self.held(kind, *a) >= (most / SHARE).max(1));
            let leaves = if let Some(address) = greedy {
                full = Full::Share;
                let own = self.idle_of.range((kind, address, 0)..=(kind, address, u64::MAX)).next();
                own.map(|(_, id)| *id)
            } else if self.used[kind as usize] >= most {
                self.idle.range((kind, 0)..=(kind, u64::MAX)).next().map(|(_, id)| *id)
            } else {
                return Ok((self.seat(kind, address), kind));
            };
            if let Some(id) = leaves {
                self.remove(id);
                return Ok((self.seat(kind, address), kind));
            }
        }
        Err(full)
    }

    fn held(&self, kind: Kind, address: IpAddr) -> usize {
        self.held.get(&(kind, address)).copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn seat(&mut self, kind: Kind, address: Option<IpAddr>) -> Place {
        let id = self.number();
        let (_stays, leave) = oneshot::channel();
        self.connections.insert(id, Connection { kind, address, requests: 0, since: None, _stays });
        self.used[kind as usize] += 1;
        if let Some(address) = address {
            *self.held.entry((kind, address)).or_default() += 1;
        }
        self.rest(id);
        Place { id, leave }
    }

    /// Does nothing if the connection is already removed.
    fn remove(&mut self, id: u64) {
        self.wake(id);
        let Some(Connection { kind, address, .. }) = self.connections.remove(&id) else { return };
        self.used[kind as usize] -= 1;
        let Some(address) = address else { return };
        if let Some(held) = self.held.get_mut(&(kind, address)) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&(kind, address));
            }
        }
    }

    /// Marks the connection as idle from now on.
    fn rest(&mut self, id: u64) {
        let now = self.number();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.since = Some(now);
        self.idle.insert((connection.kind, now), id);
        if let Some(address) = connection.address {
            self.idle_of.insert((connection.kind, address, now), id);
        }
    }

    /// Marks the connection as not idle.
    fn wake(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(since) = connection.since.take() else { return };
        self.idle.remove(&(connection.kind, since));
        if let Some(address) = connection.address {
            self.idle_of.remove(&(connection.kind, address, since));
        }
    }

    /// Starts a request; false if the connection was evicted.
    fn begin(&mut self, id: u64) -> bool {
        self.wake(id);
        self.connections.get_mut(&id).map(|connection| connection.requests += 1).is_some()
    }

    fn end(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.requests -= 1;
        if connection.requests == 0 {
            self.rest(id);
        }
    }
}

/// Id of a connection, and the receiver that ends when it is evicted.
struct Place {
    id: u64,
    leave: oneshot::Receiver<Infallible>,
}

impl Places {
    /// `regular_slots` slots, at least one, and the reserved ones.
    pub(crate) fn new(usual: usize) -> Arc<Self> {
        let table = Table {
            usual: usual.max(1),
            next: 0,
            connections: HashMap::new(),
            used: [0; 2],
            held: HashMap::new(),
            idle: BTreeMap::new(),
            idle_of: BTreeMap::new(),
        };
        Arc::new(Self { table: Mutex::new(table), changed: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a connection of `address` (`None` = not counted). Waits while all slots are in
    /// use. `None` if the address uses its whole share: other addresses must not wait behind it.
    pub(crate) async fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<(Taken, Leave)> {
        loop {
            // Created before the check, so that no change is missed.
            let changed = self.changed.notified();
            let found = self.table().take(address);
            match found {
                Ok((place, kind)) => {
                    let taken = Taken { places: Arc::clone(self), id: place.id, kind };
                    return Some((taken, Leave(place.leave)));
                }
                Err(Full::Share) => return None,
                Err(Full::All) => changed.await,
            }
        }
    }

    /// Whether all regular slots are taken.
    pub(crate) fn full(&self) -> bool {
        let table = self.table();
        table.used[Kind::Usual as usize] >= table.usual
    }

    /// Waits until every connection has ended.
    pub(crate) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.table().connections.is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// Permit for a slot; dropping it frees the slot.
pub(crate) struct Taken {
    places: Arc<Places>,
    id: u64,
    pub(crate) kind: Kind,
}

impl Taken {
    /// Starts a request. The connection is active until the guard is dropped. `None` if it was just
    /// evicted.
    pub(crate) fn begin(&self) -> Option<InUse> {
        let stays = self.places.table().begin(self.id);
        stays.then(|| InUse { places: Arc::clone(&self.places), id: self.id })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.table().remove(self.id);
        self.places.changed.notify_waiters();
    }
}

/// An active request.
pub(crate) struct InUse {
    places: Arc<Places>,
    id: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.places.table().end(self.id);
        self.places.changed.notify_waiters();
    }
}

/// Signals eviction to a connection.
pub(crate) struct Leave(oneshot::Receiver<Infallible>);

impl Leave {
    /// Completes when the connection's slot was given to another connection.
    pub(crate) async fn told(&mut self) {
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
    fn take(places: &Arc<Places>, address: Option<IpAddr>) -> Option<(Taken, Leave)> {
        places.take(address).now_or_never().flatten()
    }

    #[track_caller]
    fn must(places: &Arc<Places>, address: Option<IpAddr>, kind: Kind) -> (Taken, Leave) {
        let place = take(places, address).expect("a place");
        assert_eq!(place.0.kind, kind);
        place
    }

    fn left((_, leave): &mut (Taken, Leave)) -> bool {
        leave.told().now_or_never().is_some()
    }

    #[test]
    fn an_address_replaces_its_own_idle_connection_beyond_a_quarter() {
        let places = Places::new(8);
        let mut other = must(&places, address(9), Kind::Usual);
        let mut first = must(&places, address(1), Kind::Usual);
        let mut second = must(&places, address(1), Kind::Usual);
        // The first connection has served a request since, so the second one has been idle longer.
        drop(first.0.begin().unwrap());
        let mut third = must(&places, address(1), Kind::Usual);
        assert!(left(&mut second) && !left(&mut first), "the one that has been idle longest");
        let in_use = [first.0.begin().unwrap(), third.0.begin().unwrap()];
        let fourth = must(&places, address(1), Kind::Reserved);
        assert!(!left(&mut first) && !left(&mut third) && !left(&mut other));
        drop((in_use, fourth));
        must(&places, address(1), Kind::Usual);
        assert!(left(&mut first) && !left(&mut other));
    }

    #[test]
    fn who_is_not_counted_has_no_share() {
        let places = Places::new(8);
        let mut all: Vec<_> = (0..8).map(|_| must(&places, None, Kind::Usual)).collect();
        assert!(!all.iter_mut().any(left) && places.full());
    }

    #[test]
    fn where_places_run_out_the_longest_idle_connection_leaves() {
        let places = Places::new(4);
        let mut all: Vec<_> = (1..=4).map(|n| must(&places, address(n), Kind::Usual)).collect();
        let _busy = all[0].0.begin().unwrap();
        drop(all[1].0.begin());
        let _fifth = must(&places, address(5), Kind::Usual);
        let leave: Vec<bool> = all.iter_mut().map(left).collect();
        assert_eq!(
            leave,
            [false, false, true, false],
            "the first is in use, the second was in use a moment ago"
        );
        assert!(all[2].0.begin().is_none(), "a request that comes too late is not begun");
        drop(all.remove(2));
        assert!(places.full(), "a place that was given away is not freed a second time");
    }

    #[test]
    fn further_places_are_there_while_all_others_are_in_use() {
        let places = Places::new(4);
        let all: Vec<_> = (0..4).map(|_| must(&places, None, Kind::Usual)).collect();
        let _busy: Vec<_> = all.iter().map(|(taken, _)| taken.begin().unwrap()).collect();
        // The share of an address applies to reserved slots too.
        let mut greedy: Vec<_> = (0..8).map(|_| must(&places, address(1), Kind::Reserved)).collect();
        let ninth = must(&places, address(1), Kind::Reserved);
        assert!(left(&mut greedy[0]) && !left(&mut greedy[1]));
        drop(greedy.remove(0));
        greedy.push(ninth);
        let asks: Vec<_> = greedy.iter().map(|(taken, _)| taken.begin().unwrap()).collect();
        assert!(take(&places, address(1)).is_none(), "it uses its share");
        let mut rest: Vec<_> = (8..RESERVED).map(|_| must(&places, None, Kind::Reserved)).collect();
        let _health = must(&places, address(2), Kind::Reserved);
        assert!(left(&mut rest[0]) && !left(&mut rest[1]), "whoever asks for nothing makes room");
        drop(asks);
    }

    #[tokio::test]
    async fn where_everything_is_in_use_a_connection_waits() {
        let places = Places::new(1);
        let all: Vec<_> = std::iter::repeat_with(|| {
            take(&places, None).map(|(taken, leave)| (taken.begin(), taken, leave))
        })
        .take(1 + RESERVED)
        .collect::<Option<_>>()
        .unwrap();
        let mut waits = Box::pin(places.take(None));
        assert!((&mut waits).now_or_never().is_none());
        let mut gone = Box::pin(places.empty());
        assert!((&mut gone).now_or_never().is_none());
        drop(all);
        let (taken, leave) = waits.await.unwrap();
        assert_eq!(taken.kind, Kind::Usual);
        assert!((&mut gone).now_or_never().is_none());
        drop((taken, leave));
        gone.await;
        assert!(!places.full() && places.table().idle.is_empty() && places.table().held.is_empty());
    }
}
