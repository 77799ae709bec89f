//! Metrics of a server, in the form in which one plane passes them to the plane that exports them.
//!
//! Nothing here counts. Each component counts in its own way and builds these values on request, a
//! few times per minute.

/// All values of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The Prometheus name, with the unit last (`_seconds`, `_bytes`). A counter's name lacks the
    /// `_total` that the exporter adds.
    pub name: &'static str,
    /// What it measures, in one sentence.
    pub help: &'static str,
    /// How the value behaves over time.
    pub kind: MetricKind,
    /// One point for each set of labels.
    pub points: Vec<MetricPoint>,
}

/// How a value behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only increases.
    Counter,
    /// It increases and decreases.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// One value of a family, with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Name and value of each label. A label must have a bounded set of values: never a
    /// conversation's id.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A count.
    Count(u64),
    /// A measurement.
    Float(f64),
    /// A distribution.
    Histogram {
        /// Upper bound of each bucket and the number of values in that bucket alone (not
        /// cumulative). Ascending; the last bound is infinite.
        buckets: Vec<(f64, u64)>,
        /// Sum of all values.
        sum: f64,
    },
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for MetricValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for MetricValue {
    fn from(measure: f64) -> Self {
        Self::Float(measure)
    }
}

impl MetricFamily {
    /// A counter without a point.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter, points: Vec::new() }
    }

    /// A gauge without a point.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Gauge, points: Vec::new() }
    }

    /// A histogram without a point.
    #[must_use]
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Histogram, points: Vec::new() }
    }

    /// Adds the only point of the family, without labels.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<MetricValue>) -> Self {
        self.points.push(MetricPoint { labels: Vec::new(), value: value.into() });
        self
    }

    /// Adds a point with one label.
    #[must_use]
    pub fn with_label(
        mut self,
        label: &'static str,
        label_value: impl std::fmt::Display,
        value: impl Into<MetricValue>,
    ) -> Self {
        self.points.push(MetricPoint {
            labels: vec![(label, label_value.to_string())],
            value: value.into(),
        });
        self
    }

    /// Adds a point for each item; the label distinguishes them.
    #[must_use]
    pub fn with_each<L: std::fmt::Display, V: Into<MetricValue>>(
        self,
        label: &'static str,
        numbers: impl IntoIterator<Item = (L, V)>,
    ) -> Self {
        numbers
            .into_iter()
            .fold(self, |family, (label_value, value)| family.with_label(label, label_value, value))
    }
}
