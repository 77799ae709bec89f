//! Texts that wait for the client's data channel to open or for the client to read. The queue is
//! bounded and drops the lowest priority first.

use std::collections::VecDeque;

use super::{Priority, TextMessage};

/// Maximum size of all queued texts, bytes.
pub(super) const MAX_QUEUED_BYTES: usize = 512 * 1024;

/// Texts in the order of `push`. Over the limit, the oldest progress text is dropped first, then
/// the oldest essential text.
#[derive(Default)]
pub(super) struct SendQueue {
    progress: VecDeque<(u64, String)>,
    essential: VecDeque<(u64, String)>,
    next_number: u64,
    pub(super) bytes: usize,
    dropped: u64,
}

impl SendQueue {
    pub(super) fn push(&mut self, text: TextMessage) {
        self.bytes += text.body.len();
        let numbered = (self.next_number, text.body);
        self.next_number += 1;
        match text.priority {
            Priority::Progress => self.progress.push_back(numbered),
            Priority::Essential => self.essential.push_back(numbered),
        }
        while self.bytes > MAX_QUEUED_BYTES {
            let Some((_, body)) = self.progress.pop_front().or_else(|| self.essential.pop_front())
            else {
                break;
            };
            self.bytes -= body.len();
            self.dropped += 1;
        }
    }

    /// The text that was pushed first.
    pub(super) fn front(&self) -> Option<&str> {
        self.front_queue().front().map(|(_, body)| body.as_str())
    }

    /// Removes the front text after it was sent.
    pub(super) fn pop_front(&mut self) {
        let front_queue =
            if self.front_is_progress() { &mut self.progress } else { &mut self.essential };
        if let Some((_, body)) = front_queue.pop_front() {
            self.bytes -= body.len();
        }
    }

    /// Removes the front text and counts it as dropped, because it cannot be sent.
    pub(super) fn drop_front(&mut self) {
        self.pop_front();
        self.dropped += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.progress.is_empty() && self.essential.is_empty()
    }

    /// Number of texts that never reached the client.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn front_is_progress(&self) -> bool {
        match (self.progress.front(), self.essential.front()) {
            (Some((progress, _)), Some((essential, _))) => progress < essential,
            (progress, _) => progress.is_some(),
        }
    }

    fn front_queue(&self) -> &VecDeque<(u64, String)> {
        if self.front_is_progress() { &self.progress } else { &self.essential }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut SendQueue) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(text) = queue.front() {
            texts.push(text.chars().take(4).collect());
            queue.pop_front();
        }
        texts
    }

    #[test]
    fn texts_are_sent_in_order() {
        let mut queue = SendQueue::default();
        for n in 0..6 {
            let text = TextMessage::from(n.to_string());
            queue.push(if n % 3 == 1 { text.as_progress() } else { text });
        }
        assert_eq!(drain(&mut queue), ["0", "1", "2", "3", "4", "5"]);
        assert!(queue.is_empty() && queue.dropped() == 0 && queue.bytes == 0);
    }

    #[test]
    fn events_are_kept_during_a_flood_of_progress_messages() {
        let mut queue = SendQueue::default();
        queue.push("fact one".into());
        for n in 0..10_000 {
            queue.push(TextMessage::from(format!("{n:04} {}", "x".repeat(200))).as_progress());
            if n == 5_000 {
                queue.push("fact two".into());
            }
        }
        assert!(
            queue.bytes <= MAX_QUEUED_BYTES && queue.dropped() > 5_000,
            "{} bytes",
            queue.bytes
        );
        let left = drain(&mut queue);
        assert_eq!(left.iter().filter(|text| *text == "fact").count(), 2);
        assert_eq!(left.last().unwrap(), "9999", "the newest progress is kept");
    }

    #[test]
    fn the_queue_of_events_is_bounded() {
        let mut queue = SendQueue::default();
        for n in 0..1_000 {
            queue.push(TextMessage::from(format!("{n:04}{}", "y".repeat(10_000))));
        }
        assert!(queue.bytes <= MAX_QUEUED_BYTES);
        assert_eq!(queue.dropped() as usize + drain(&mut queue).len(), 1_000);
    }
}
