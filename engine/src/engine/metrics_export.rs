//! Metrics of the engine, by thread and by channel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use conversation::metrics::MetricFamily;

use super::CallEngine;
use crate::media_thread::Inbox;
use crate::messages;
use crate::stats::ThreadStats;

/// Totals of all senders of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// How often the channel was full; [`messages::CHANNELS`] defines what happens then.
    pub full_count: u64,
    /// Highest number of items that ever waited.
    pub max_depth: usize,
    /// Number of items that wait now, in all its receivers.
    pub depth: usize,
}

impl CallEngine {
    /// Channels by name, with their counters.
    #[must_use]
    pub fn channel_stats(&self) -> Vec<(&'static str, ChannelStats)> {
        let mut counts: Vec<_> =
            messages::CHANNELS.iter().map(|e| (e.name, ChannelStats::default())).collect();
        let mut add = |name, full, deepest, waiting| {
            for (_, count) in counts.iter_mut().filter(|(sender, _)| *sender == name) {
                count.full_count += full;
                count.max_depth = count.max_depth.max(deepest);
                count.depth += waiting;
            }
        };
        for Inbox { requests, stage_events: news, tcp } in self.threads.iter().map(|t| &t.inbox) {
            for sender in [requests, news, tcp] {
                add(sender.channel().name, sender.full_count(), sender.max_depth(), sender.depth());
            }
        }
        if let Some(trace) = &self.trace {
            add(trace.channel().name, trace.full_count(), trace.max_depth(), trace.depth());
        }
        counts
    }

    pub(super) fn metric_families(&self) -> Vec<MetricFamily> {
        let stats = || self.threads.iter().map(|thread| &*thread.stats);
        let sum = |of: fn(&ThreadStats) -> &AtomicU64| stats().map(|s| of(s).load(Relaxed)).sum::<u64>();
        let micros = |of: &AtomicU64| of.load(Relaxed) as f64 / 1e6;
        let channels = self.channel_stats();
        let channel =
            |of: fn(&ChannelStats) -> u64| channels.iter().map(move |(name, count)| (*name, of(count)));
        let (waiting, evicted) = {
            let directory = self.lock_directory();
            (directory.pending_offers.count(), directory.pending_offers.evicted_count())
        };
        let mut families = vec![
            MetricFamily::counter("visavis_calls_ended", "Calls that are over.").with_value(sum(|s| &s.ended_calls)),
            MetricFamily::counter("visavis_panics", "Panics of the process: each is a fault of the server, and ends one call or restarts one thread.")
                .with_value(crate::thread::panic_count()),
            MetricFamily::gauge("visavis_media_threads_dead", "Media threads that failed and take no calls until they have begun anew.")
                .with_value(self.dead_thread_count() as u64),
            MetricFamily::counter("visavis_media_thread_pauses", "How often a media thread failed too often and paused before it began anew.")
                .with_value(sum(|s| &s.restart_pauses)),
            MetricFamily::counter("visavis_audio_frames", "Frames of agents' voices handed out, of 10 or 20 ms, silence included.")
                .with_value(sum(|s| &s.audio_frames)),
            MetricFamily::counter(
                "visavis_audio_frames_late",
                "Frames of agents' voices handed out more than 60 ms after the playout clock needed them.",
            )
            .with_value(sum(|s| &s.late_audio_frames)),
            MetricFamily::counter(
                "visavis_audio_frames_left_out",
                "Frames of agents' voices that were never handed out because a tick came over 200 ms too late for them.",
            )
            .with_value(sum(|s| &s.skipped_audio_frames)),
            MetricFamily::counter(
                "visavis_audio_underruns",
                "Frames in which a sounding piece lacked samples: the voice was slower than speech.",
            )
            .with_value(sum(|s| &s.underruns)),
            MetricFamily::counter("visavis_faces_renewed", "Changes of calls' faces to a better set of a person that was still being drawn.")
                .with_value(sum(|s| &s.avatar_upgrades)),
            MetricFamily::counter("visavis_vad_windows", "Windows of 32 ms judged by the speech detector.")
                .with_value(sum(|s| &s.vad_windows)),
            MetricFamily::counter(
                "visavis_audio_packets_excess",
                "Packets of users' voices dropped because they came faster than real time.",
            )
            .with_value(sum(|s| &s.excess_packets)),
            MetricFamily::counter("visavis_datagrams_stray", "Datagrams that came and belonged to no call.")
                .with_value(sum(|s| &s.unknown_datagrams)),
            MetricFamily::counter("visavis_datagrams_unsent", "Datagrams that the system did not take.")
                .with_value(sum(|s| &s.send_dropped_datagrams)),
            MetricFamily::counter("visavis_media_ticks", "Ticks of a media thread, one each 10 ms while it has calls.")
                .with_each("thread", stats().map(|s| s.ticks.load(Relaxed)).enumerate()),
            MetricFamily::counter("visavis_media_busy_seconds", "Time that a media thread spent working.")
                .with_each("thread", stats().map(|s| micros(&s.busy_us)).enumerate()),
            MetricFamily::histogram("visavis_media_tick_seconds", "What a media thread's tick took, of its 10 ms.")
                .with_each("thread", stats().map(|s| s.tick_times.snapshot()).enumerate()),
            MetricFamily::histogram("visavis_media_tick_lateness_seconds", "How late a media thread's tick began.")
                .with_each("thread", stats().map(|s| s.tick_lateness.snapshot()).enumerate()),
            MetricFamily::gauge(
                "visavis_media_used_ratio",
                "Share of its time that a media thread works: 95th percentile of the last seconds' ticks.",
            )
            .with_each("thread", stats().map(|s| s.load.busy_ratio()).enumerate()),
            MetricFamily::gauge(
                "visavis_media_done_seconds",
                "How long after its time a media thread's tick was done: the same percentile.",
            )
            .with_each("thread", stats().map(|s| s.load.tick_delay().as_secs_f64()).enumerate()),
            MetricFamily::gauge(
                "visavis_process_used_ratio",
                "Share of its processors that the whole process took in the last seconds; 0 without a call.",
            )
            .with_value(stats().map(|s| s.load.process_busy_ratio()).fold(0.0, f64::max)),
            MetricFamily::counter("visavis_calls_refused", "Conversations that were not made and offers of new calls that were not taken, by reason.")
                .with_each("reason", self.rejections.counts()),
            MetricFamily::gauge("visavis_offers_waiting", "Offers that were answered and have not connected.")
                .with_value(waiting as u64),
            MetricFamily::counter(
                "visavis_offers_evicted",
                "Offers that had not connected and made room for newer ones: too many of one network, for one agent, or in all.",
            )
            .with_value(evicted),
            MetricFamily::gauge("visavis_media_calls", "Calls held by a media thread.")
                .with_each("thread", self.threads.iter().map(|t| t.slots_taken.load(Relaxed)).enumerate()),
            MetricFamily::gauge("visavis_media_inbox", "Messages that wait for a media thread.")
                .with_each("thread", self.threads.iter().map(|t| t.inbox.requests.depth()).enumerate()),
            MetricFamily::gauge("visavis_edge_depth_max", "Most items that ever waited in an edge between threads.")
                .with_each("edge", channel(|count| count.max_depth as u64)),
            MetricFamily::gauge("visavis_edge_depth_limit", "Items that an edge between threads holds.")
                .with_each("edge", messages::CHANNELS.iter().map(|e| (e.name, e.capacity))),
            MetricFamily::counter(
                "visavis_edge_full",
                "How often an edge between threads was full: its newcomer was dropped, or refused.",
            )
            .with_each("edge", channel(|count| count.full_count)),
        ];
        families.extend(self.latencies.metrics());
        families.extend(self.models.metrics());
        families
    }
}
