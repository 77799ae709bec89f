//! What a server measures of itself: numbers under a name, in the form in which one plane hands them to the one that serves them.
//!
//! Nothing here counts. Whoever counts does so in its own way and makes this of it when it is asked, some times a minute.

/// Numbers of one kind under one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// In Prometheus' manner: the unit last (`_seconds`, `_bytes`); a counter without the `_total` that its writer adds.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub help: &'static str,
    /// What it does over time.
    pub kind: MetricKind,
    /// One for each set of labels.
    pub points: Vec<MetricPoint>,
}

/// What a number does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How values are spread.
    Histogram,
}

/// A number, and which of its family.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Name and value of each label. Never a conversation's id, nor anything else of which there are ever more.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: MetricValue,
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A count.
    Count(u64),
    /// A measure.
    Float(f64),
    /// Of a histogram.
    Histogram {
        /// Upper bound of each bucket, ascending, the last one infinite, with the values in it (not of those below).
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

    /// The family's only number.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<MetricValue>) -> Self {
        self.points.push(MetricPoint { labels: Vec::new(), value: value.into() });
        self
    }

    /// One more number, told apart by a label.
    #[must_use]
    pub fn with_label(
        mut self,
        label: &'static str,
        label_value: impl std::fmt::Display,
        value: impl Into<MetricValue>,
    ) -> Self {
        self.points.push(MetricPoint { labels: vec![(label, label_value.to_string())], value: value.into() });
        self
    }

    /// A number for each item, told apart by a label.
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
