//! Metrics that were renamed after version 0.1.0. The first release with the new names exports each
//! under both names, so that dashboards and alerts keep working; the release after it removes the
//! previous names. CHANGELOG.md lists them under "Unreleased".

use engine_api::metrics::MetricFamily;

/// New name and previous name, both without `_total`.
const RENAMED: [(&str, &str); 20] = [
    ("visavis_audio_frames_skipped", "visavis_audio_frames_left_out"),
    ("visavis_audio_packets_rate_limited", "visavis_audio_packets_excess"),
    ("visavis_avatar_upgrades", "visavis_faces_renewed"),
    ("visavis_calls_rejected", "visavis_calls_refused"),
    ("visavis_channel_capacity", "visavis_edge_depth_limit"),
    ("visavis_channel_full", "visavis_edge_full"),
    ("visavis_channel_max_depth", "visavis_edge_depth_max"),
    ("visavis_datagrams_send_dropped", "visavis_datagrams_unsent"),
    ("visavis_datagrams_unknown", "visavis_datagrams_stray"),
    ("visavis_events_dropped", "visavis_facts_dropped"),
    ("visavis_events_failed", "visavis_facts_refused"),
    ("visavis_events_queued", "visavis_facts_queued"),
    ("visavis_media_busy_ratio", "visavis_media_used_ratio"),
    ("visavis_media_inbox_messages", "visavis_media_inbox"),
    ("visavis_media_thread_restart_pauses", "visavis_media_thread_pauses"),
    ("visavis_media_tick_delay_seconds", "visavis_media_done_seconds"),
    ("visavis_offers_pending", "visavis_offers_waiting"),
    ("visavis_process_cpu_ratio", "visavis_process_used_ratio"),
    ("visavis_stage_failures", "visavis_failures"),
    ("visavis_stt_decoders", "visavis_decoders"),
];
/// New name and previous name of a label.
const RENAMED_LABELS: [(&str, &str); 1] = [("channel", "edge")];

/// Adds each renamed family once more, under its previous name and with its previous labels.
pub(super) fn add_previous_names(families: &mut Vec<MetricFamily>) {
    let previous = families.iter().filter_map(|family| {
        let (_, name) = RENAMED.iter().find(|(new, _)| *new == family.name)?;
        let mut family = MetricFamily { name, ..family.clone() };
        for (label, _) in family.points.iter_mut().flat_map(|point| &mut point.labels) {
            if let Some((_, previous)) = RENAMED_LABELS.iter().find(|(new, _)| new == label) {
                *label = previous;
            }
        }
        Some(family)
    });
    let previous: Vec<_> = previous.collect();
    families.extend(previous);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_metric_is_exported_under_both_names() {
        let mut families = vec![
            MetricFamily::gauge("visavis_calls", "Calls.").with_value(3u64),
            MetricFamily::counter("visavis_channel_full", "Full.").with_label("channel", "a", 7u64),
        ];
        add_previous_names(&mut families);
        assert_eq!(families.len(), 3);
        assert_eq!(
            families[2],
            MetricFamily::counter("visavis_edge_full", "Full.").with_label("edge", "a", 7u64)
        );
    }
}
