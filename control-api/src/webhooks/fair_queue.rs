//! Queue of jobs that wait for capacity, fair between workspaces. Workspaces take turns, and so do
//! the sources within one (an agent's receiver, for example): a workspace or source with many jobs
//! does not displace those with few. Pure: the caller decides what a job is and when it has
//! finished.

use std::collections::{HashMap, VecDeque};

/// The waiting jobs, and the number of active ones.
pub(crate) struct Turns<T> {
    places: usize,
    of_one: usize,
    taken: usize,
    workspaces: HashMap<String, Workspace<T>>,
    /// Workspaces with waiting jobs, the next one first.
    order: VecDeque<String>,
}

struct Workspace<T> {
    taken: usize,
    sources: HashMap<String, Source<T>>,
    /// Sources with waiting jobs, the next one first.
    order: VecDeque<String>,
}

struct Source<T> {
    taken: usize,
    waiting: VecDeque<T>,
}

impl<T> Turns<T> {
    /// At most `capacity` active jobs, of which at most `max_per_source` for one source.
    pub(crate) fn new(places: usize, of_one: usize) -> Self {
        Self { places, of_one, taken: 0, workspaces: HashMap::new(), order: VecDeque::new() }
    }

    /// Adds a job at the end of its source's queue.
    pub(crate) fn push(&mut self, workspace: &str, source: &str, work: T) {
        let own = self.workspaces.entry(workspace.to_owned()).or_insert_with(|| Workspace {
            taken: 0,
            sources: HashMap::new(),
            order: VecDeque::new(),
        });
        if own.order.is_empty() {
            self.order.push_back(workspace.to_owned());
        }
        let queue = own
            .sources
            .entry(source.to_owned())
            .or_insert_with(|| Source { taken: 0, waiting: VecDeque::new() });
        if queue.waiting.is_empty() {
            own.order.push_back(source.to_owned());
        }
        queue.waiting.push_back(work);
    }

    /// The next job, which is active until [`release`](Self::release); `None` if no waiting job may
    /// start.
    ///
    /// A workspace may start a job only while it has fewer active jobs than there is free capacity.
    /// A single busy workspace thus holds at most half of the capacity, and two busy ones a third
    /// each. While fewer workspaces are busy than the capacity, a workspace without active jobs can
    /// always start one.
    pub(crate) fn next(&mut self) -> Option<T> {
        let free = self.places - self.taken;
        for at in 0..self.order.len() {
            let own = self.workspaces.get_mut(&self.order[at])?;
            if own.taken >= free {
                continue;
            }
            let Some(work) = own.next(self.of_one) else { continue };
            self.taken += 1;
            if let Some(name) = self.order.remove(at)
                && !own.order.is_empty()
            {
                self.order.push_back(name);
            }
            return Some(work);
        }
        None
    }

    /// Records that a job of a source has finished.
    pub(crate) fn done(&mut self, workspace: &str, source: &str) {
        let Some(own) = self.workspaces.get_mut(workspace) else { return };
        let Some(queue) = own.sources.get_mut(source).filter(|queue| queue.taken > 0) else { return };
        queue.taken -= 1;
        own.taken -= 1;
        self.taken -= 1;
        self.tidy(workspace, source);
    }

    /// Drops the waiting jobs of a source.
    pub(crate) fn forget(&mut self, workspace: &str, source: &str) {
        let Some(own) = self.workspaces.get_mut(workspace) else { return };
        let Some(queue) = own.sources.get_mut(source) else { return };
        queue.waiting.clear();
        own.order.retain(|name| name != source);
        if own.order.is_empty() {
            self.order.retain(|name| name != workspace);
        }
        self.tidy(workspace, source);
    }

    /// Removes the source, and its workspace, if nothing of it waits or is active.
    fn tidy(&mut self, workspace: &str, source: &str) {
        let Some(own) = self.workspaces.get_mut(workspace) else { return };
        if own.sources.get(source).is_some_and(|queue| queue.taken == 0 && queue.waiting.is_empty()) {
            own.sources.remove(source);
        }
        if own.sources.is_empty() {
            self.workspaces.remove(workspace);
        }
    }
}

impl<T> Workspace<T> {
    fn next(&mut self, of_one: usize) -> Option<T> {
        for at in 0..self.order.len() {
            let queue = self.sources.get_mut(&self.order[at])?;
            if queue.taken >= of_one {
                continue;
            }
            let work = queue.waiting.pop_front()?;
            queue.taken += 1;
            self.taken += 1;
            if let Some(name) = self.order.remove(at)
                && !queue.waiting.is_empty()
            {
                self.order.push_back(name);
            }
            return Some(work);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Piece = (&'static str, &'static str, usize);

    fn turns(places: usize, of_one: usize, all: &[(&'static str, &'static str, usize)]) -> Turns<Piece> {
        let mut turns = Turns::new(places, of_one);
        for &(workspace, source, count) in all {
            (0..count).for_each(|n| turns.push(workspace, source, (workspace, source, n)));
        }
        turns
    }

    /// All jobs that may start now, as `a1 3`: workspace, source, number.
    fn begun(turns: &mut Turns<Piece>) -> Vec<String> {
        std::iter::from_fn(|| turns.next()).map(|(w, s, n)| format!("{w}{s} {n}")).collect()
    }

    #[test]
    fn workspaces_take_turns_and_so_do_the_sources_of_one() {
        let mut turns = turns(100, 9, &[("a", "1", 3), ("a", "2", 2), ("b", "1", 2), ("c", "1", 1)]);
        let order = ["a1 0", "b1 0", "c1 0", "a2 0", "b1 1", "a1 1", "a2 1", "a1 2"];
        assert_eq!(begun(&mut turns), order);
    }

    #[test]
    fn whoever_holds_places_leaves_some_to_those_who_hold_none() {
        // Five receivers that hang, each with as many events as one receiver may have active.
        let five: Vec<_> = ["1", "2", "3", "4", "5"].map(|agent| ("a", agent, 64)).into();
        let mut turns = turns(256, 64, &five);
        assert_eq!(begun(&mut turns).len(), 128, "half of the places");
        turns.push("b", "1", ("b", "1", 0));
        assert_eq!(begun(&mut turns), ["b1 0"], "at once, though all of the others hang");
        (1..200).for_each(|n| turns.push("b", "1", ("b", "1", n)));
        assert_eq!(begun(&mut turns).len(), 63, "no more than one source may have");
        turns.push("c", "1", ("c", "1", 0));
        assert_eq!(begun(&mut turns), ["c1 0"]);
        assert_eq!(turns.taken, 128 + 64 + 1);
    }

    #[test]
    fn a_place_that_is_free_again_goes_to_whose_turn_it_is() {
        let mut turns = turns(3, 9, &[("a", "1", 3), ("b", "1", 3)]);
        assert_eq!(begun(&mut turns), ["a1 0", "b1 0"], "of three places each has one, and one is free");
        turns.done("b", "1");
        assert_eq!(begun(&mut turns), ["a1 1", "b1 1"]);
        turns.done("a", "1");
        assert!(begun(&mut turns).is_empty(), "each has one again");
        turns.done("a", "1");
        assert_eq!(begun(&mut turns), ["a1 2"]);
        turns.done("b", "1");
        assert_eq!(begun(&mut turns), ["b1 2"]);
        turns.done("a", "1");
        turns.done("b", "1");
        assert!(turns.workspaces.is_empty() && turns.order.is_empty() && turns.taken == 0);
        turns.done("b", "1");
        assert_eq!(turns.taken, 0, "nothing is given back twice");
    }

    #[test]
    fn a_source_that_may_have_no_more_holds_up_nobody() {
        let mut turns = turns(100, 1, &[("a", "1", 2), ("a", "2", 1), ("b", "1", 1)]);
        assert_eq!(begun(&mut turns), ["a1 0", "b1 0", "a2 0"]);
        turns.done("a", "1");
        assert_eq!(begun(&mut turns), ["a1 1"]);
    }

    #[test]
    fn what_waits_of_a_source_can_be_forgotten() {
        let mut turns = turns(100, 1, &[("a", "1", 3), ("a", "2", 1), ("b", "1", 2)]);
        assert_eq!(turns.next(), Some(("a", "1", 0)));
        turns.forget("a", "1");
        turns.forget("b", "1");
        assert_eq!(begun(&mut turns), ["a2 0"]);
        turns.done("a", "1");
        turns.done("a", "2");
        assert!(turns.workspaces.is_empty() && turns.order.is_empty());
    }
}
