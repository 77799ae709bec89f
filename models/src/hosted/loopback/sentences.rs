//! What a failure tells a person, and what the log tells the operator.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use super::KEY;

/// Length of the parts of the key that may not be repeated.
const PART: usize = 6;
/// Length of a sentence that a person reads.
const MAX_CHARS: usize = 400;

/// Checks that a text contains no part of the key.
pub(crate) fn assert_no_key(text: &str) {
    for part in KEY.as_bytes().windows(PART) {
        let part = str::from_utf8(part).unwrap();
        assert!(!text.contains(part), "a part of the key: {text}");
    }
}

/// Checks that a failure is one clear sentence with the vendor's name.
pub(crate) fn assert_clear(sentence: &str, vendor: &str) {
    assert_no_key(sentence);
    assert!(sentence.contains(vendor), "without the name of {vendor}: {sentence}");
    assert!(!sentence.contains(char::is_control), "not one line: {sentence:?}");
    assert!(sentence.chars().count() <= MAX_CHARS, "too long: {sentence}");
    assert!(sentence.split_whitespace().count() > 2, "not a sentence: {sentence}");
    assert!(!sentence.contains("{\""), "JSON: {sentence}");
}

/// The lines of the log on this thread, while it exists.
pub(crate) struct Logs {
    lines: Arc<Mutex<String>>,
    _guard: DefaultGuard,
}

impl Logs {
    pub(crate) fn start() -> Self {
        let lines = Arc::new(Mutex::new(String::new()));
        let guard = tracing::subscriber::set_default(Collector(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    /// Checks that no line contains a part of the key.
    pub(crate) fn assert_no_key(&self) {
        assert_no_key(&self.lines.lock().unwrap());
    }

    /// The lines so far.
    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap().clone()
    }
}

struct Collector(Arc<Mutex<String>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Line(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut lines = self.0.lock().unwrap();
        event.record(&mut Line(&mut lines));
        lines.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
