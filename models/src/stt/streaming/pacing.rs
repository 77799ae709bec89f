//! The commands that are not sent yet, at the speed that the vendor accepts.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{Command, duration_of};

/// Audio that may be ahead of the maximum speed.
const BURST: Duration = Duration::from_secs(1);

/// A queue of commands. Audio leaves it at most at a maximum speed, beyond the first second.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: VecDeque<Command>,
    /// Maximum speed, as a multiple of real time; `None` = any.
    max_speed: Option<f64>,
    created_at: Instant,
    /// When the audio that has left the queue would have left it at the maximum speed.
    covered_until: Instant,
}

impl Backlog {
    pub(super) fn new(now: Instant, max_speed: Option<f64>) -> Self {
        Self { queue: VecDeque::new(), max_speed, created_at: now, covered_until: now }
    }

    pub(super) fn push(&mut self, command: Command) {
        self.queue.push_back(command);
    }

    /// When the next command may leave; `None` if there is none.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let next = self.queue.front()?;
        let delayed = self.max_speed.is_some() && matches!(next, Command::Audio(_));
        let start = self.covered_until.checked_sub(BURST).filter(|_| delayed);
        Some(start.unwrap_or(self.created_at))
    }

    /// The next command, if it may leave now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Command> {
        if self.ready_at()? > now {
            return None;
        }
        let command = self.queue.pop_front()?;
        if let (Command::Audio(chunk), Some(speed)) = (&command, self.max_speed) {
            let time = duration_of(chunk.len()).div_f64(speed);
            self.covered_until = self.covered_until.max(now) + time;
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stt::streaming::CHUNK_BYTES;

    #[tokio::test(start_paused = true)]
    async fn audio_leaves_at_the_maximum_speed_beyond_the_first_second() {
        let start = Instant::now();
        let mut backlog = Backlog::new(start, Some(1.25));
        assert_eq!((backlog.ready_at(), backlog.pop(start)), (None, None));
        backlog.push(Command::StartSpeech);
        for _ in 0..30 {
            backlog.push(Command::Audio(vec![0; CHUNK_BYTES].into()));
        }
        backlog.push(Command::EndSpeech);
        let mut left = 0;
        while backlog.pop(start).is_some() {
            left += 1;
        }
        // The start, and 26 chunks of 40 ms each: the last one begins within the second.
        assert_eq!(left, 27);
        let next = backlog.ready_at().unwrap();
        assert_eq!(next - start, Duration::from_millis(40));
        assert!(backlog.pop(next).is_some() && backlog.pop(next).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        let now = Instant::now();
        assert_eq!(std::iter::from_fn(|| backlog.pop(now)).count(), 4, "the rest and the end");
        // Audio in real time is not delayed.
        for _ in 0..100 {
            backlog.push(Command::Audio(vec![0; CHUNK_BYTES].into()));
            assert!(backlog.pop(Instant::now()).is_some());
            tokio::time::advance(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_maximum_speed_nothing_waits() {
        let mut backlog = Backlog::new(Instant::now(), None);
        for _ in 0..500 {
            backlog.push(Command::Audio(vec![0; CHUNK_BYTES].into()));
        }
        assert_eq!(std::iter::from_fn(|| backlog.pop(Instant::now())).count(), 500);
    }
}
