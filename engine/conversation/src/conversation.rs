//! The machine: see the crate's documentation.

use std::collections::VecDeque;

use crate::input::Input;
use crate::output::Output;
use crate::spec::Spec;
use crate::time::Time;
use crate::timers::Reason;

/// One conversation.
pub struct Conversation {
    spec: Spec,
    outputs: VecDeque<Output>,
    explains: bool,
}

impl Conversation {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self { spec, outputs: VecDeque::new(), explains: false }
    }

    /// Whether each decision is followed by an [`Output::Explain`].
    pub fn explain(&mut self, on: bool) {
        self.explains = on;
    }

    /// Takes in what happened at `now`. What is due before is served first, each deadline at its own time, earliest first.
    pub fn handle(&mut self, input: Input, now: Time) {
        let _ = (input, now, &self.spec);
    }

    /// The next wish or fact. Drain them all after every [`Conversation::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Conversation::handle`] must be called at the latest, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, Reason)> {
        None
    }
}
