//! Queue of jobs that wait for capacity, fair between workspaces. Workspaces take turns, and so do
//! the sources within one (an agent's receiver, for example): a workspace or source with many jobs
//! does not displace those with few. Pure: the caller decides what a job is and when it has
//! finished.

use std::collections::{HashMap, VecDeque};

/// The waiting jobs, and the number of active ones.
pub(crate) struct FairQueue<T> {
    capacity: usize,
    max_per_source: usize,
    active: usize,
    workspaces: HashMap<String, WorkspaceQueue<T>>,
    /// Workspaces with waiting jobs, the next one first.
    round_robin: VecDeque<String>,
}

struct WorkspaceQueue<T> {
    active: usize,
    sources: HashMap<String, SourceQueue<T>>,
    /// Sources with waiting jobs, the next one first.
    round_robin: VecDeque<String>,
}

struct SourceQueue<T> {
    active: usize,
    waiting: VecDeque<T>,
}

impl<T> FairQueue<T> {
    /// At most `capacity` active jobs, of which at most `max_per_source` for one source.
    pub(crate) fn new(capacity: usize, max_per_source: usize) -> Self {
        Self {
            capacity,
            max_per_source,
            active: 0,
            workspaces: HashMap::new(),
            round_robin: VecDeque::new(),
        }
    }

    /// Adds a job at the end of its source's queue.
    pub(crate) fn push(&mut self, workspace: &str, source: &str, work: T) {
        let workspace_queue = self.workspaces.entry(workspace.to_owned()).or_insert_with(|| {
            WorkspaceQueue { active: 0, sources: HashMap::new(), round_robin: VecDeque::new() }
        });
        if workspace_queue.round_robin.is_empty() {
            self.round_robin.push_back(workspace.to_owned());
        }
        let queue = workspace_queue
            .sources
            .entry(source.to_owned())
            .or_insert_with(|| SourceQueue { active: 0, waiting: VecDeque::new() });
        if queue.waiting.is_empty() {
            workspace_queue.round_robin.push_back(source.to_owned());
        }
        queue.waiting.push_back(work);
    }

    /// Number of jobs of a source that wait.
    pub(crate) fn waiting_count(&self, workspace: &str, source: &str) -> usize {
        let sources = self.workspaces.get(workspace).map(|queue| &queue.sources);
        sources.and_then(|sources| sources.get(source)).map_or(0, |queue| queue.waiting.len())
    }

    /// The next job, which is active until [`release`](Self::release); `None` if no waiting job may
    /// start.
    ///
    /// A workspace may start a job only while it has fewer active jobs than there is free capacity.
    /// A single busy workspace thus holds at most half of the capacity, and two busy ones a third
    /// each. While fewer workspaces are busy than the capacity, a workspace without active jobs can
    /// always start one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let free = self.capacity - self.active;
        for at in 0..self.round_robin.len() {
            let workspace_queue = self.workspaces.get_mut(&self.round_robin[at])?;
            if workspace_queue.active >= free {
                continue;
            }
            let Some(work) = workspace_queue.pop(self.max_per_source) else { continue };
            self.active += 1;
            if let Some(name) = self.round_robin.remove(at)
                && !workspace_queue.round_robin.is_empty()
            {
                self.round_robin.push_back(name);
            }
            return Some(work);
        }
        None
    }

    /// Records that a job of a source has finished.
    pub(crate) fn release(&mut self, workspace: &str, source: &str) {
        let Some(workspace_queue) = self.workspaces.get_mut(workspace) else { return };
        let Some(queue) = workspace_queue.sources.get_mut(source).filter(|queue| queue.active > 0)
        else {
            return;
        };
        queue.active -= 1;
        workspace_queue.active -= 1;
        self.active -= 1;
        self.remove_idle(workspace, source);
    }

    /// Drops the waiting jobs of a source.
    pub(crate) fn discard(&mut self, workspace: &str, source: &str) {
        let Some(workspace_queue) = self.workspaces.get_mut(workspace) else { return };
        let Some(queue) = workspace_queue.sources.get_mut(source) else { return };
        queue.waiting.clear();
        workspace_queue.round_robin.retain(|name| name != source);
        if workspace_queue.round_robin.is_empty() {
            self.round_robin.retain(|name| name != workspace);
        }
        self.remove_idle(workspace, source);
    }

    /// Removes the source, and its workspace, if nothing of it waits or is active.
    fn remove_idle(&mut self, workspace: &str, source: &str) {
        let Some(workspace_queue) = self.workspaces.get_mut(workspace) else { return };
        if workspace_queue
            .sources
            .get(source)
            .is_some_and(|queue| queue.active == 0 && queue.waiting.is_empty())
        {
            workspace_queue.sources.remove(source);
        }
        if workspace_queue.sources.is_empty() {
            self.workspaces.remove(workspace);
        }
    }
}

impl<T> WorkspaceQueue<T> {
    fn pop(&mut self, max_per_source: usize) -> Option<T> {
        for at in 0..self.round_robin.len() {
            let queue = self.sources.get_mut(&self.round_robin[at])?;
            if queue.active >= max_per_source {
                continue;
            }
            let work = queue.waiting.pop_front()?;
            queue.active += 1;
            self.active += 1;
            if let Some(name) = self.round_robin.remove(at)
                && !queue.waiting.is_empty()
            {
                self.round_robin.push_back(name);
            }
            return Some(work);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Job = (&'static str, &'static str, usize);

    fn queue_with(
        places: usize,
        of_one: usize,
        all: &[(&'static str, &'static str, usize)],
    ) -> FairQueue<Job> {
        let mut turns = FairQueue::new(places, of_one);
        for &(workspace, source, count) in all {
            (0..count).for_each(|n| turns.push(workspace, source, (workspace, source, n)));
        }
        turns
    }

    /// All jobs that may start now, as `a1 3`: workspace, source, number.
    fn pop_all(turns: &mut FairQueue<Job>) -> Vec<String> {
        std::iter::from_fn(|| turns.pop()).map(|(w, s, n)| format!("{w}{s} {n}")).collect()
    }

    #[test]
    fn workspaces_take_turns_and_so_do_the_sources_of_one() {
        let mut turns =
            queue_with(100, 9, &[("a", "1", 3), ("a", "2", 2), ("b", "1", 2), ("c", "1", 1)]);
        let order = ["a1 0", "b1 0", "c1 0", "a2 0", "b1 1", "a1 1", "a2 1", "a1 2"];
        assert_eq!(pop_all(&mut turns), order);
    }

    #[test]
    fn a_client_with_connections_leaves_slots_for_others() {
        // Five receivers that hang, each with as many events as one receiver may have active.
        let five: Vec<_> = ["1", "2", "3", "4", "5"].map(|agent| ("a", agent, 64)).into();
        let mut turns = queue_with(256, 64, &five);
        assert_eq!(pop_all(&mut turns).len(), 128, "half of the slots");
        turns.push("b", "1", ("b", "1", 0));
        assert_eq!(pop_all(&mut turns), ["b1 0"], "at once, although all others hang");
        (1..200).for_each(|n| turns.push("b", "1", ("b", "1", n)));
        assert_eq!(pop_all(&mut turns).len(), 63, "at most the slots of one source");
        turns.push("c", "1", ("c", "1", 0));
        assert_eq!(pop_all(&mut turns), ["c1 0"]);
        assert_eq!(turns.active, 128 + 64 + 1);
    }

    #[test]
    fn a_free_slot_goes_to_the_next_source_in_turn() {
        let mut turns = queue_with(3, 9, &[("a", "1", 3), ("b", "1", 3)]);
        assert_eq!(
            pop_all(&mut turns),
            ["a1 0", "b1 0"],
            "each has one of three slots, and one is free"
        );
        turns.release("b", "1");
        assert_eq!(pop_all(&mut turns), ["a1 1", "b1 1"]);
        turns.release("a", "1");
        assert!(pop_all(&mut turns).is_empty(), "each has one again");
        turns.release("a", "1");
        assert_eq!(pop_all(&mut turns), ["a1 2"]);
        turns.release("b", "1");
        assert_eq!(pop_all(&mut turns), ["b1 2"]);
        turns.release("a", "1");
        turns.release("b", "1");
        assert!(turns.workspaces.is_empty() && turns.round_robin.is_empty() && turns.active == 0);
        turns.release("b", "1");
        assert_eq!(turns.active, 0, "no slot is released twice");
    }

    #[test]
    fn a_source_at_its_limit_delays_no_other_source() {
        let mut turns = queue_with(100, 1, &[("a", "1", 2), ("a", "2", 1), ("b", "1", 1)]);
        assert_eq!(pop_all(&mut turns), ["a1 0", "b1 0", "a2 0"]);
        turns.release("a", "1");
        assert_eq!(pop_all(&mut turns), ["a1 1"]);
    }

    #[test]
    fn the_queue_of_a_source_can_be_removed() {
        let mut turns = queue_with(100, 1, &[("a", "1", 3), ("a", "2", 1), ("b", "1", 2)]);
        assert_eq!(turns.pop(), Some(("a", "1", 0)));
        turns.discard("a", "1");
        turns.discard("b", "1");
        assert_eq!(pop_all(&mut turns), ["a2 0"]);
        turns.release("a", "1");
        turns.release("a", "2");
        assert!(turns.workspaces.is_empty() && turns.round_robin.is_empty());
    }
}
