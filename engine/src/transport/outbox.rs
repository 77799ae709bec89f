//! Texts that wait for the client's data channel, or for a client that takes none: bounded, and what matters least goes first.

use std::collections::VecDeque;

use super::{Text, Weight};

/// Bytes that may wait.
pub(super) const BYTES: usize = 512 * 1024;

/// Texts in the order in which they were told. Over the limit the oldest progress goes, then the oldest fact.
#[derive(Default)]
pub(super) struct Outbox {
    progress: VecDeque<(u64, String)>,
    facts: VecDeque<(u64, String)>,
    next: u64,
    pub(super) bytes: usize,
    dropped: u64,
}

impl Outbox {
    pub(super) fn push(&mut self, text: Text) {
        self.bytes += text.body.len();
        let numbered = (self.next, text.body);
        self.next += 1;
        match text.weight {
            Weight::Progress => self.progress.push_back(numbered),
            Weight::Fact => self.facts.push_back(numbered),
        }
        while self.bytes > BYTES {
            let Some((_, body)) = self.progress.pop_front().or_else(|| self.facts.pop_front()) else { break };
            self.bytes -= body.len();
            self.dropped += 1;
        }
    }

    /// The text that was told first.
    pub(super) fn front(&self) -> Option<&str> {
        self.first().front().map(|(_, body)| body.as_str())
    }

    /// That one is on its way.
    pub(super) fn sent(&mut self) {
        let first = if self.is_progress() { &mut self.progress } else { &mut self.facts };
        if let Some((_, body)) = first.pop_front() {
            self.bytes -= body.len();
        }
    }

    /// That one cannot be sent at all.
    pub(super) fn lost(&mut self) {
        self.sent();
        self.dropped += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.progress.is_empty() && self.facts.is_empty()
    }

    /// Texts that the client never got.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn is_progress(&self) -> bool {
        match (self.progress.front(), self.facts.front()) {
            (Some((progress, _)), Some((fact, _))) => progress < fact,
            (progress, _) => progress.is_some(),
        }
    }

    fn first(&self) -> &VecDeque<(u64, String)> {
        if self.is_progress() { &self.progress } else { &self.facts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(outbox: &mut Outbox) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(text) = outbox.front() {
            texts.push(text.chars().take(4).collect());
            outbox.sent();
        }
        texts
    }

    #[test]
    fn texts_go_in_the_order_in_which_they_were_told() {
        let mut outbox = Outbox::default();
        for n in 0..6 {
            let text = Text::from(n.to_string());
            outbox.push(if n % 3 == 1 { text.progress() } else { text });
        }
        assert_eq!(all(&mut outbox), ["0", "1", "2", "3", "4", "5"]);
        assert!(outbox.is_empty() && outbox.dropped() == 0 && outbox.bytes == 0);
    }

    #[test]
    fn facts_outlive_any_flood_of_progress() {
        let mut outbox = Outbox::default();
        outbox.push("fact one".into());
        for n in 0..10_000 {
            outbox.push(Text::from(format!("{n:04} {}", "x".repeat(200))).progress());
            if n == 5_000 {
                outbox.push("fact two".into());
            }
        }
        assert!(outbox.bytes <= BYTES && outbox.dropped() > 5_000, "{} bytes", outbox.bytes);
        let left = all(&mut outbox);
        assert_eq!(left.iter().filter(|text| *text == "fact").count(), 2);
        assert_eq!(left.last().unwrap(), "9999", "the newest progress is kept");
    }

    #[test]
    fn facts_alone_are_bounded_too() {
        let mut outbox = Outbox::default();
        for n in 0..1_000 {
            outbox.push(Text::from(format!("{n:04}{}", "y".repeat(10_000))));
        }
        assert!(outbox.bytes <= BYTES);
        assert_eq!(outbox.dropped() as usize + all(&mut outbox).len(), 1_000);
    }
}
