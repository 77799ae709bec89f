//! What a server measures of itself: numbers under a name, in the form in which one plane hands them to the one that serves them.
//!
//! Nothing here counts. Whoever counts does so in its own way and makes this of it when it is asked, some times a minute.

/// Numbers of one kind under one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// In Prometheus' manner: the unit last (`_seconds`, `_bytes`); a counter without the `_total` that its writer adds.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub help: &'static str,
    /// What it does over time.
    pub kind: Kind,
    /// One for each set of labels.
    pub points: Vec<Point>,
}

/// What a number does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How values are spread.
    Histogram,
}

/// A number, and which of its family.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name and value of each label. Never a conversation's id, nor anything else of which there are ever more.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: Value,
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A measure.
    Real(f64),
    /// Of a histogram.
    Spread {
        /// Upper bound of each bucket, ascending, the last one infinite, with the values in it (not of those below).
        buckets: Vec<(f64, u64)>,
        /// Sum of all values.
        sum: f64,
    },
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Value {
    fn from(measure: f64) -> Self {
        Self::Real(measure)
    }
}

impl Family {
    /// A counter without a point.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter, points: Vec::new() }
    }

    /// A gauge without a point.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge, points: Vec::new() }
    }

    /// A histogram without a point.
    #[must_use]
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Histogram, points: Vec::new() }
    }

    /// The family's only number.
    #[must_use]
    pub fn of(mut self, value: impl Into<Value>) -> Self {
        self.points.push(Point { labels: Vec::new(), value: value.into() });
        self
    }

    /// One more number, told apart by a label.
    #[must_use]
    pub fn with(mut self, label: &'static str, is: impl std::fmt::Display, value: impl Into<Value>) -> Self {
        self.points.push(Point { labels: vec![(label, is.to_string())], value: value.into() });
        self
    }

    /// A number for each item, told apart by a label.
    #[must_use]
    pub fn each<L: std::fmt::Display, V: Into<Value>>(
        self,
        label: &'static str,
        numbers: impl IntoIterator<Item = (L, V)>,
    ) -> Self {
        numbers.into_iter().fold(self, |family, (is, value)| family.with(label, is, value))
    }
}
