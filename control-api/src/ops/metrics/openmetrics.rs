//! Encodes metrics as OpenMetrics text.

use std::fmt;

use engine_api::metrics::{MetricFamily, MetricKind, MetricValue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Media type of the output of [`encode_families`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes families; the name of a counter ends in `_total`.
///
/// # Errors
/// Errors of the library; none is known for numbers.
pub(super) fn encode_families(families: Vec<MetricFamily>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyCollector(families)));
    let mut text = String::with_capacity(16 << 10);
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All metric families of one response.
#[derive(Debug)]
struct FamilyCollector(Vec<MetricFamily>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for point in &family.points {
                if point.labels.is_empty() {
                    encode_value(&mut encoder, family.kind, &point.value)?;
                } else {
                    let labels: Vec<_> =
                        point.labels.iter().map(|(name, is)| (*name, is.as_str())).collect();
                    encode_value(&mut encoder.encode_family(&labels)?, family.kind, &point.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricKind,
    value: &MetricValue,
) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, MetricValue::Count(n)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(n, None)
        }
        (MetricKind::Counter, MetricValue::Float(n)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(n, None)
        }
        (_, MetricValue::Count(n)) => encoder.encode_gauge(n),
        (_, MetricValue::Float(n)) => encoder.encode_gauge(n),
        (_, MetricValue::Histogram { buckets, sum }) => {
            let count = buckets.iter().map(|(_, n)| n).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_exactly() {
        let spread = MetricValue::Histogram {
            buckets: vec![(0.25, 2), (1.0, 0), (f64::INFINITY, 1)],
            sum: 3.5,
        };
        let text = encode_families(vec![
            MetricFamily::gauge("calls", "Calls.").with_value(3usize),
            MetricFamily::counter("busy_seconds", "Time.")
                .with_label("thread", 0, 1.25)
                .with_label("thread", 1, 0.0),
            MetricFamily::gauge("strange", "Signs.").with_label("edge", "a\"b\\c\nd", 7u64),
            MetricFamily::histogram("took_seconds", "Spread.").with_label("thread", 0, spread),
        ])
        .unwrap();
        let expected = "\
# HELP calls Calls.
# TYPE calls gauge
calls 3
# HELP busy_seconds Time.
# TYPE busy_seconds counter
busy_seconds_total{thread=\"0\"} 1.25
busy_seconds_total{thread=\"1\"} 0.0
# HELP strange Signs.
# TYPE strange gauge
strange{edge=\"a\\\"b\\\\c\\nd\"} 7
# HELP took_seconds Spread.
# TYPE took_seconds histogram
took_seconds_sum{thread=\"0\"} 3.5
took_seconds_count{thread=\"0\"} 3
took_seconds_bucket{le=\"0.25\",thread=\"0\"} 2
took_seconds_bucket{le=\"1.0\",thread=\"0\"} 2
took_seconds_bucket{le=\"+Inf\",thread=\"0\"} 3
# EOF
";
        assert_eq!(text, expected);
    }
}
