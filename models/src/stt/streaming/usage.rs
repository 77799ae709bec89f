//! What a stream uses, as far as vendors bill it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::duration_of;
use crate::Sink;
use crate::stt::{Event, Usage};

/// Interval of the reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Tokens that a vendor bills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stt) struct TokenUsage {
    /// Of the audio and the prompt.
    pub(in crate::stt) input: u32,
    /// Of the transcript.
    pub(in crate::stt) output: u32,
}

impl TokenUsage {
    /// Reads OpenAI's field `usage`. Models that are billed by duration report no tokens.
    pub(in crate::stt) fn read(usage: &Value) -> Self {
        let count = |name| {
            let count = usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Self { input: count("input_tokens"), output: count("output_tokens") }
    }
}

/// Counts the usage of a stream, and reports it in parts.
#[derive(Debug, Default)]
pub(in crate::stt) struct Meter {
    usage: Usage,
    /// Until when the duration of the open connection is counted.
    counted_until: Option<Instant>,
    /// When the next report is due.
    report_at: Option<Instant>,
}

impl Meter {
    /// A connection is open.
    pub(in crate::stt) fn connect(&mut self, now: Instant) {
        self.counted_until = Some(now);
        self.expect_report(now);
    }

    /// The connection has ended.
    pub(in crate::stt) fn disconnect(&mut self, now: Instant) {
        self.count_connection(now);
        self.counted_until = None;
    }

    /// Audio was sent.
    pub(in crate::stt) fn add_audio(&mut self, now: Instant, bytes: usize) {
        self.usage.audio += duration_of(bytes);
        self.expect_report(now);
    }

    /// A request was sent.
    pub(in crate::stt) fn add_request(&mut self, now: Instant) {
        self.usage.requests += 1;
        self.expect_report(now);
    }

    /// The vendor reports tokens.
    pub(in crate::stt) fn add_tokens(&mut self, now: Instant, tokens: TokenUsage) {
        let usage = &mut self.usage;
        usage.input_tokens = usage.input_tokens.saturating_add(tokens.input);
        usage.output_tokens = usage.output_tokens.saturating_add(tokens.output);
        self.expect_report(now);
    }

    /// When the next report is due; `None` if there is nothing to report.
    pub(in crate::stt) fn report_at(&self) -> Option<Instant> {
        self.report_at
    }

    /// Reports what was used since the last report, if anything was.
    pub(in crate::stt) fn report(&mut self, now: Instant, sink: &Sink<Event>) {
        self.count_connection(now);
        self.report_at = self.counted_until.map(|_| now + REPORT_INTERVAL);
        let usage = std::mem::take(&mut self.usage);
        if usage != Usage::default() {
            sink.send(Event::Usage(usage));
        }
    }

    fn count_connection(&mut self, now: Instant) {
        if let Some(since) = &mut self.counted_until {
            self.usage.connected += now.saturating_duration_since(*since);
            *since = now;
        }
    }

    fn expect_report(&mut self, now: Instant) {
        self.report_at.get_or_insert(now + REPORT_INTERVAL);
    }
}
