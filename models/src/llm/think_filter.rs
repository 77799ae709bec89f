//! Removes the thoughts that some models write before their reply, between two tags such as
//! `<think>` and `</think>`:
//!
//! ```text
//!                       incomplete `<think>`
//!             Start ───────────────────────────► PartialTag ─┐ still incomplete
//!              │ │                                │  │  ▲    │
//!              │ └── `<think>` ──► Inside ◄───────┘  │  └────┘
//!              │                     │ `</think>`    │
//!              │                     ▼               │ other text, or the end
//!              │                   After             │
//!              │ other text          │ first word    │
//!              └─────────────────────┴───────────────┴──► Outside
//! ```

/// Filter of one reply, or of one part of it that begins with thoughts of its own.
#[derive(Debug)]
pub(super) struct ThinkFilter {
    open: &'static str,
    close: &'static str,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// No text yet.
    #[default]
    Start,
    /// The text may be the start of the tag.
    PartialTag(String),
    /// In the thoughts; holds the end of the text so far.
    Inside(String),
    /// Before the first word of the reply.
    After,
    /// In the reply.
    Outside,
}

impl ThinkFilter {
    /// A filter of the thoughts between the tags `open` and `close`.
    pub(super) fn new(open: &'static str, close: &'static str) -> Self {
        Self { open, close, state: State::Start }
    }

    /// Processes more text; returns what belongs to the reply.
    pub(super) fn push(&mut self, text: &str) -> String {
        let held = match std::mem::replace(&mut self.state, State::Outside) {
            State::Outside => return text.to_owned(),
            State::Start => text.to_owned(),
            State::PartialTag(held) => held + text,
            State::After => {
                let text = text.trim_start();
                if text.is_empty() {
                    self.state = State::After;
                }
                return text.to_owned();
            }
            State::Inside(held) => {
                let held = held + text;
                return match held.split_once(self.close) {
                    Some((_, after)) => {
                        self.state = State::After;
                        self.push(after)
                    }
                    None => {
                        let tail_length = (0..=held.len().min(self.close.len()))
                            .rev()
                            .find(|n| held.is_char_boundary(held.len() - n))
                            .unwrap_or(0);
                        self.state = State::Inside(held[held.len() - tail_length..].to_owned());
                        String::new()
                    }
                };
            }
        };
        let start = held.trim_start();
        if let Some(inside) = start.strip_prefix(self.open) {
            self.state = State::Inside(String::new());
            return self.push(inside);
        }
        if self.open.starts_with(start) {
            self.state = State::PartialTag(held);
            return String::new();
        }
        held
    }

    /// The text ends. Held-back text was no tag, so it is returned.
    pub(super) fn finish(&mut self) -> String {
        match std::mem::replace(&mut self.state, State::Outside) {
            State::PartialTag(held) => held,
            _ => String::new(),
        }
    }
}
