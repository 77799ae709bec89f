//! Percentiles.

use serde::Serialize;

/// Summary of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Number of values.
    pub(crate) n: usize,
    /// Median. `None` without values, as are all the following.
    pub(crate) p50: Option<f64>,
    /// 95th percentile.
    pub(crate) p95: Option<f64>,
    /// 99th percentile.
    pub(crate) p99: Option<f64>,
    /// Maximum.
    pub(crate) max: Option<f64>,
}

/// Percentile of sorted values by the nearest-rank method, so the result is one of the values.
/// `share` is 0 to 1.
#[must_use]
pub(crate) fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

impl Summary {
    /// Summary in ms of values in s.
    #[must_use]
    pub(crate) fn from_seconds(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let ms = |value: Option<f64>| value.map(|v| round_to(v * 1e3, 2));
        Self {
            n: values.len(),
            p50: ms(percentile(&values, 0.5)),
            p95: ms(percentile(&values, 0.95)),
            p99: ms(percentile(&values, 0.99)),
            max: ms(values.last().copied()),
        }
    }
}

/// Rounds to this number of decimal places.
#[must_use]
pub(crate) fn round_to(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let summary = Summary::from_seconds((1..=200).rev().map(|n| f64::from(n) / 1e3).collect());
        assert_eq!(
            summary,
            Summary {
                n: 200,
                p50: Some(100.0),
                p95: Some(190.0),
                p99: Some(198.0),
                max: Some(200.0)
            }
        );
        let one = Summary::from_seconds(vec![0.5]);
        assert_eq!((one.p50, one.p99), (Some(500.0), Some(500.0)));
        assert_eq!(Summary::from_seconds(Vec::new()), Summary::default());
    }
}
