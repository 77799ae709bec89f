//! The voices of replies: a change of the voice lasts to the end of the reply.

use std::sync::{Arc, Weak};

/// The latest replies. `S`: a segment.
pub(super) struct Replies<S> {
    /// The reply in which a voice was replaced, and the first entry that may speak it.
    changed: (u64, usize),
    /// The latest reply, and its segments that are spoken.
    latest: (Option<u64>, Vec<Weak<S>>),
}

impl<S> Default for Replies<S> {
    fn default() -> Self {
        Self { changed: (0, 0), latest: (None, Vec::new()) }
    }
}

impl<S> Replies<S> {
    /// The first entry of the chain that may speak a reply.
    pub(super) fn first_entry(&self, reply: u64) -> usize {
        if self.changed.0 == reply { self.changed.1 } else { 0 }
    }

    /// The rest of the reply is spoken by the entry `number` or those after it.
    pub(super) fn change_voice(&mut self, reply: u64, number: usize) {
        self.changed = (reply, number);
    }

    /// Whether no segment of the reply is known.
    pub(super) fn is_new(&self, reply: u64) -> bool {
        self.latest.0 != Some(reply)
    }

    /// Adds a segment.
    pub(super) fn add(&mut self, reply: u64, segment: &Arc<S>) {
        if self.is_new(reply) {
            self.latest = (Some(reply), Vec::new());
        }
        self.latest.1.retain(|segment| segment.strong_count() > 0);
        self.latest.1.push(Arc::downgrade(segment));
    }

    /// The segments of a reply that are spoken.
    pub(super) fn segments(&self, reply: u64) -> Vec<Arc<S>> {
        if self.is_new(reply) {
            return Vec::new();
        }
        self.latest.1.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_its_segments_and_its_voice() {
        let mut replies = Replies::default();
        assert!(replies.is_new(0) && replies.segments(0).is_empty());
        let (first, second) = (Arc::new('a'), Arc::new('b'));
        replies.add(4, &first);
        replies.add(4, &second);
        replies.change_voice(4, 1);
        drop(first);
        assert_eq!(replies.segments(4), [Arc::clone(&second)]);
        assert_eq!((replies.first_entry(4), replies.first_entry(5)), (1, 0));
        replies.add(5, &second);
        assert!(replies.is_new(4) && !replies.is_new(5));
        assert_eq!(replies.segments(4), []);
    }
}
