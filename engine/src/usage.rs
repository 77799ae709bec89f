//! What the providers of a call use, from their events to the conversation's events.

use std::time::{Duration, Instant};

use conversation::event::{Event, Stage};
use conversation::providers::{ProviderUsage, UsageAmounts};

/// Minimum interval between two reports while the call runs. A crash loses at most this much.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The use that was not reported yet.
#[derive(Debug, Default)]
pub(crate) struct UsageCounter {
    entries: Vec<(Stage, &'static str, UsageAmounts)>,
    last_report: Option<Instant>,
}

impl UsageCounter {
    /// Adds what a provider used. Use of an unknown provider, whose name is empty, is not counted.
    pub(crate) fn add(&mut self, kind: Stage, provider: &'static str, amounts: &UsageAmounts) {
        if provider.is_empty() {
            return;
        }
        match self.entries.iter_mut().find(|(k, name, _)| (*k, *name) == (kind, provider)) {
            Some((.., known)) => known.add(amounts),
            None => self.entries.push((kind, provider, *amounts)),
        }
    }

    /// Adds one request to a provider.
    pub(crate) fn add_request(&mut self, kind: Stage, provider: &'static str) {
        self.add(kind, provider, &UsageAmounts { requests: 1, ..UsageAmounts::default() });
    }

    /// Whether a report is due. The first one is due an interval after the first call.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let last = *self.last_report.get_or_insert(now);
        !self.entries.is_empty() && now.saturating_duration_since(last) >= REPORT_INTERVAL
    }

    /// The report: one event per kind and provider.
    pub(crate) fn take(&mut self, now: Instant) -> impl Iterator<Item = Event> {
        self.last_report = Some(now);
        std::mem::take(&mut self.entries).into_iter().map(|(kind, provider, amounts)| {
            Event::ProviderUsage(ProviderUsage { kind, provider: provider.to_owned(), amounts })
        })
    }
}

/// The use that an STT stream reports.
pub(crate) fn stt_amounts(usage: &models::stt::Usage) -> UsageAmounts {
    UsageAmounts {
        connected_seconds: usage.connected.as_secs_f64(),
        audio_seconds: usage.audio.as_secs_f64(),
        input_tokens: usage.input_tokens.into(),
        output_tokens: usage.output_tokens.into(),
        requests: usage.requests.into(),
        ..UsageAmounts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_added_up_by_kind_and_provider_and_reported_at_most_every_ten_seconds() {
        let mut counter = UsageCounter::default();
        let start = crate::clock::now();
        assert!(!counter.is_due(start), "nothing was used");
        let characters = |characters| UsageAmounts { characters, ..UsageAmounts::default() };
        counter.add(Stage::Tts, "cartesia", &characters(5));
        counter.add_request(Stage::Llm, "openai");
        counter.add(Stage::Tts, "cartesia", &characters(7));
        counter.add(Stage::Tts, "openai", &characters(1));
        counter.add(Stage::Stt, "", &characters(100));
        assert!(!counter.is_due(start + REPORT_INTERVAL - Duration::from_millis(1)));
        assert!(counter.is_due(start + REPORT_INTERVAL));
        let report: Vec<_> = counter
            .take(start + REPORT_INTERVAL)
            .map(|event| match event {
                Event::ProviderUsage(u) => {
                    (u.kind, u.provider, u.amounts.characters, u.amounts.requests)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (Stage::Tts, "cartesia".to_owned(), 12, 0),
            (Stage::Llm, "openai".to_owned(), 0, 1),
            (Stage::Tts, "openai".to_owned(), 1, 0),
        ];
        assert_eq!(report, expected);
        assert!(!counter.is_due(start + 3 * REPORT_INTERVAL), "everything was reported");
    }
}
