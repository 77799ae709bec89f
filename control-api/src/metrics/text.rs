//! Numbers to OpenMetrics text.

use std::fmt;

use conversation::measure::{Family, Kind, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// What [`open_metrics`] writes.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes families, a counter's name with `_total`.
///
/// # Errors
/// The library's; none is known for numbers.
pub(super) fn open_metrics(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Gathered(families)));
    let mut text = String::with_capacity(16 << 10);
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All numbers of one answer.
#[derive(Debug)]
struct Gathered(Vec<Family>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for point in &family.points {
                if point.labels.is_empty() {
                    write(&mut encoder, family.kind, &point.value)?;
                } else {
                    let labels: Vec<_> = point.labels.iter().map(|(name, is)| (*name, is.as_str())).collect();
                    write(&mut encoder.encode_family(&labels)?, family.kind, &point.value)?;
                }
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Count(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        (Kind::Counter, Value::Real(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        (_, Value::Count(n)) => encoder.encode_gauge(n),
        (_, Value::Real(n)) => encoder.encode_gauge(n),
        (_, Value::Spread { buckets, sum }) => {
            let count = buckets.iter().map(|(_, n)| n).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_to_the_letter() {
        let spread = Value::Spread { buckets: vec![(0.25, 2), (1.0, 0), (f64::INFINITY, 1)], sum: 3.5 };
        let text = open_metrics(vec![
            Family::gauge("calls", "Calls.").of(3usize),
            Family::counter("busy_seconds", "Time.").with("thread", 0, 1.25).with("thread", 1, 0.0),
            Family::gauge("strange", "Signs.").with("edge", "a\"b\\c\nd", 7u64),
            Family::histogram("took_seconds", "Spread.").with("thread", 0, spread),
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
