//! Metrics of the engine, by thread and by channel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine_api::metrics::MetricFamily;

use super::CallEngine;
use crate::channel;
use crate::media_thread::Inbox;
use crate::recorder::{Recorder, RecorderStats};
use crate::stats::ThreadStats;

/// Totals of all senders of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// How often the channel was full; [`channel::CHANNELS`] defines what happens then.
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
            channel::CHANNELS.iter().map(|e| (e.name, ChannelStats::default())).collect();
        let mut add = |name, full, deepest, waiting| {
            for (_, count) in counts.iter_mut().filter(|(sender, _)| *sender == name) {
                count.full_count += full;
                count.max_depth = count.max_depth.max(deepest);
                count.depth += waiting;
            }
        };
        for Inbox { requests, stage_events, tcp } in self.threads.iter().map(|t| &t.inbox) {
            for sender in [requests, stage_events] {
                add(sender.channel().name, sender.full_count(), sender.max_depth(), sender.depth());
            }
            add(tcp.channel().name, tcp.full_count(), tcp.max_depth(), tcp.depth());
        }
        if let Some(trace) = &self.trace {
            add(trace.channel().name, trace.full_count(), trace.max_depth(), trace.depth());
        }
        if let Some(Recorder { sender, .. }) = &self.recorder {
            add(sender.channel().name, sender.full_count(), sender.max_depth(), sender.depth());
        }
        counts
    }

    pub(super) fn metric_families(&self) -> Vec<MetricFamily> {
        let stats = || self.threads.iter().map(|thread| &*thread.stats);
        let sum =
            |of: fn(&ThreadStats) -> &AtomicU64| stats().map(|s| of(s).load(Relaxed)).sum::<u64>();
        let micros = |of: &AtomicU64| of.load(Relaxed) as f64 / 1e6;
        let channels = self.channel_stats();
        let channel = |of: fn(&ChannelStats) -> u64| {
            channels.iter().map(move |(name, count)| (*name, of(count)))
        };
        let (waiting, evicted) = {
            let directory = self.lock_directory();
            (directory.pending_offers.count(), directory.pending_offers.evicted_count())
        };
        let mut families = vec![
            MetricFamily::counter("visavis_calls_ended", "Calls that have ended.")
                .with_value(sum(|s| &s.ended_calls)),
            MetricFamily::counter(
                "visavis_panics",
                "Panics of the process. Each panic is a defect of the server.",
            )
            .with_value(crate::thread::panic_count()),
            MetricFamily::gauge(
                "visavis_media_threads_dead",
                "Media threads that have failed and accept no calls until they restart.",
            )
            .with_value(self.dead_thread_count() as u64),
            MetricFamily::counter(
                "visavis_media_thread_restart_pauses",
                "Pauses before the restart of a media thread that failed repeatedly.",
            )
            .with_value(sum(|s| &s.restart_pauses)),
            MetricFamily::counter(
                "visavis_audio_frames",
                "Audio frames of 10 or 20 ms sent by agents, including silence.",
            )
            .with_value(sum(|s| &s.audio_frames)),
            MetricFamily::counter("visavis_video_frames", "Video frames sent by agents.")
                .with_value(sum(|s| &s.video_frames)),
            MetricFamily::counter(
                "visavis_audio_frames_late",
                "Audio frames sent more than 60 ms after their playout time.",
            )
            .with_value(sum(|s| &s.late_audio_frames)),
            MetricFamily::counter(
                "visavis_audio_frames_skipped",
                "Audio frames not sent because a tick was more than 200 ms late.",
            )
            .with_value(sum(|s| &s.skipped_audio_frames)),
            MetricFamily::counter(
                "visavis_audio_underruns",
                "Audio frames of a playing segment without samples: the TTS is slower than real \
                 time.",
            )
            .with_value(sum(|s| &s.underruns)),
            MetricFamily::counter(
                "visavis_avatar_upgrades",
                "Upgrades of running calls to a more complete pose set, while an avatar is being \
                 drawn.",
            )
            .with_value(sum(|s| &s.avatar_upgrades)),
            MetricFamily::counter("visavis_vad_windows", "Windows of 32 ms processed by the VAD.")
                .with_value(sum(|s| &s.vad_windows)),
            MetricFamily::counter(
                "visavis_audio_packets_rate_limited",
                "Audio packets of users dropped by the rate limit: 1.2 times real time, bursts of \
                 5 s.",
            )
            .with_value(sum(|s| &s.excess_packets)),
            MetricFamily::counter(
                "visavis_datagrams_unknown",
                "Received datagrams that belong to no call.",
            )
            .with_value(sum(|s| &s.unknown_datagrams)),
            MetricFamily::counter(
                "visavis_datagrams_rate_limited",
                "Received datagrams dropped by the rate limit: 2,000 per second and connection, \
                 bursts of 2,048.",
            )
            .with_value(sum(|s| &s.rate_limited_datagrams)),
            MetricFamily::counter(
                "visavis_datagrams_send_dropped",
                "Datagrams that the kernel did not accept for sending.",
            )
            .with_value(sum(|s| &s.send_dropped_datagrams)),
            MetricFamily::counter(
                "visavis_media_ticks",
                "Ticks of a media thread, one every 10 ms while it has calls.",
            )
            .with_each("thread", stats().map(|s| s.ticks.load(Relaxed)).enumerate()),
            MetricFamily::counter(
                "visavis_media_busy_seconds",
                "Time that a media thread was busy.",
            )
            .with_each("thread", stats().map(|s| micros(&s.busy_us)).enumerate()),
            MetricFamily::histogram(
                "visavis_media_tick_seconds",
                "Duration of a tick of a media thread. The tick interval is 10 ms.",
            )
            .with_each("thread", stats().map(|s| s.tick_times.snapshot()).enumerate()),
            MetricFamily::histogram(
                "visavis_media_tick_lateness_seconds",
                "Delay of the start of a tick of a media thread.",
            )
            .with_each("thread", stats().map(|s| s.tick_lateness.snapshot()).enumerate()),
            MetricFamily::gauge(
                "visavis_media_busy_ratio",
                "Busy share of a media thread: 95th percentile of the last five seconds.",
            )
            .with_each("thread", stats().map(|s| s.load.busy_ratio()).enumerate()),
            MetricFamily::gauge(
                "visavis_media_tick_delay_seconds",
                "Time from a tick's due time to its end: 95th percentile of the last five seconds.",
            )
            .with_each("thread", stats().map(|s| s.load.tick_delay().as_secs_f64()).enumerate()),
            MetricFamily::gauge(
                "visavis_process_cpu_ratio",
                "Share of its processors that the process used in the last five seconds; \
                 0 without a call.",
            )
            .with_value(stats().map(|s| s.load.process_busy_ratio()).fold(0.0, f64::max)),
            MetricFamily::counter(
                "visavis_calls_rejected",
                "Rejected new conversations, offers and connecting calls, by reason.",
            )
            .with_each("reason", self.rejections.counts()),
            MetricFamily::gauge(
                "visavis_offers_pending",
                "Answered offers that have not connected.",
            )
            .with_value(waiting as u64),
            MetricFamily::counter(
                "visavis_offers_evicted",
                "Pending offers evicted by newer ones: too many of one network, of one agent, \
                 or in total.",
            )
            .with_value(evicted),
            MetricFamily::gauge("visavis_media_calls", "Calls on a media thread.").with_each(
                "thread",
                self.threads.iter().map(|t| t.slots_taken.load(Relaxed)).enumerate(),
            ),
            MetricFamily::gauge(
                "visavis_media_inbox_messages",
                "Messages in the inbox of a media thread.",
            )
            .with_each("thread", self.threads.iter().map(|t| t.inbox.requests.depth()).enumerate()),
            MetricFamily::gauge(
                "visavis_channel_max_depth",
                "Maximum number of items that waited in a channel between threads.",
            )
            .with_each("channel", channel(|count| count.max_depth as u64)),
            MetricFamily::gauge(
                "visavis_channel_capacity",
                "Capacity of a channel between threads, in items.",
            )
            .with_each("channel", channel::CHANNELS.iter().map(|e| (e.name, e.capacity))),
            MetricFamily::counter(
                "visavis_channel_full",
                "Items that a channel between threads dropped or rejected because it was full.",
            )
            .with_each("channel", channel(|count| count.full_count)),
        ];
        let recorder = self.recorder.as_ref().map(|recorder| &*recorder.stats);
        let recorded = |of: fn(&RecorderStats) -> &AtomicU64| {
            recorder.map_or(0, |stats| of(stats).load(Relaxed))
        };
        families.extend([
            MetricFamily::counter(
                "visavis_recordings_failed",
                "Recordings that ended before their call, because of the disk.",
            )
            .with_value(recorded(|stats| &stats.failed)),
            MetricFamily::counter(
                "visavis_recorded_bytes",
                "Bytes of recordings written during calls.",
            )
            .with_value(recorded(|stats| &stats.bytes)),
            MetricFamily::counter(
                "visavis_recording_packets_dropped",
                "Packets of recorded calls that are in no file, because of the disk.",
            )
            .with_value(recorded(|stats| &stats.dropped_packets)),
            MetricFamily::counter(
                "visavis_recorder_cpu_seconds",
                "CPU time of recordings during calls: estimated for the media threads, and measured \
                 for the thread that writes to the disk.",
            )
            .with_each("thread", recorder.map(recorder_cpu_seconds).into_iter().flatten()),
        ]);
        families.extend(self.latencies.metrics());
        families.extend(self.models.metrics());
        families
    }
}

/// CPU time of recordings in s, by thread.
fn recorder_cpu_seconds(stats: &RecorderStats) -> [(&'static str, f64); 2] {
    let seconds = |nanos: &AtomicU64| nanos.load(Relaxed) as f64 / 1e9;
    [("media", seconds(&stats.cost.media)), ("disk", seconds(&stats.cost.disk))]
}
