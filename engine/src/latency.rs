//! Latency of the turns of all calls, by stage. Derived from the same events as a call's record.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use conversation::event::{Event, Stage};
use engine_api::metrics::MetricFamily;

use crate::stats::Histogram;

/// Upper bounds of the buckets in µs.
const BUCKET_BOUNDS_US: &[u64] = &[
    25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 500_000, 600_000,
    800_000, 1_000_000, 1_200_000, 1_500_000, 2_000_000, 3_000_000, 5_000_000, 10_000_000,
];

/// Histograms of the turns' stages for all media threads together: each call writes to them a few
/// times a minute.
#[derive(Debug)]
pub struct LatencyMetrics {
    voice_to_voice: Histogram,
    endpointing: Histogram,
    llm_first_token: Histogram,
    tts_first_byte: Histogram,
    first_sample: Histogram,
    barge_in: Histogram,
    /// Indexed by [`Stage`].
    failures: [AtomicU64; Stage::ALL.len()],
}

impl Default for LatencyMetrics {
    fn default() -> Self {
        let new = || Histogram::new(BUCKET_BOUNDS_US);
        Self {
            voice_to_voice: new(),
            endpointing: new(),
            llm_first_token: new(),
            tts_first_byte: new(),
            first_sample: new(),
            barge_in: new(),
            failures: Default::default(),
        }
    }
}

impl LatencyMetrics {
    /// Adds the latencies or the failure that an event reports, if any.
    pub fn observe(&self, event: &Event) {
        let add = |histogram: &Histogram, seconds: Option<f64>| {
            if let Some(seconds) = seconds {
                histogram.observe(Duration::try_from_secs_f64(seconds).unwrap_or_default());
            }
        };
        match event {
            Event::Turn(times) => {
                add(&self.voice_to_voice, times.voice_to_voice);
                add(&self.endpointing, times.endpointing);
                add(&self.llm_first_token, times.llm_ttft);
                add(&self.tts_first_byte, times.tts_ttfb);
                add(&self.first_sample, times.playout);
            }
            Event::TurnReplyHeard { barge_in, .. } => add(&self.barge_in, *barge_in),
            Event::Error { stage, .. } => {
                self.failures[*stage as usize].fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }

    /// All metric families.
    #[must_use]
    pub fn metrics(&self) -> Vec<MetricFamily> {
        let histogram = |name, help, of: &Histogram| {
            MetricFamily::histogram(name, help).with_value(of.snapshot())
        };
        vec![
            histogram(
                "visavis_turn_voice_to_voice_seconds",
                "True end of the user's speech to the first sample of the reply sent.",
                &self.voice_to_voice,
            ),
            histogram(
                "visavis_turn_endpointing_seconds",
                "True end of the user's speech to the commit of the turn.",
                &self.endpointing,
            ),
            histogram(
                "visavis_turn_llm_first_token_seconds",
                "Request to the LLM to its first token.",
                &self.llm_first_token,
            ),
            histogram(
                "visavis_turn_tts_first_byte_seconds",
                "Request to the TTS to the first audio of the reply.",
                &self.tts_first_byte,
            ),
            histogram(
                "visavis_turn_first_sample_seconds",
                "First audio of the reply from the TTS to its first sample sent.",
                &self.first_sample,
            ),
            histogram(
                "visavis_turn_barge_in_seconds",
                "True onset of the interrupting speech to the agent's silence.",
                &self.barge_in,
            ),
            MetricFamily::counter(
                "visavis_stage_failures",
                "Failures and timeouts of models and tools in calls, by stage.",
            )
            .with_each(
                "stage",
                Stage::ALL
                    .map(|stage| (stage.as_str(), self.failures[stage as usize].load(Relaxed))),
            ),
        ]
    }
}
