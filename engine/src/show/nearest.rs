//! Finds the nearest of a few points. A table contains the candidates of each part of space, so
//! that a search compares only these.

/// A point, or the weights of its values: the squared distance of two points is the sum of the
/// weighted squared differences.
pub(super) type Point<const N: usize> = [f32; N];

/// Lowest and highest of each value.
pub(super) type Limits<const N: usize> = [[f32; 2]; N];

/// A value along which space is divided into parts of equal length.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Index of the value.
    pub(super) value: usize,
    /// Number of parts.
    pub(super) parts: u8,
}

/// A table of points.
pub(super) struct NearestTable<const N: usize, const A: usize> {
    limits: Limits<N>,
    axes: [Axis; A],
    /// For each combination of parts, the range of its candidates.
    ranges: Vec<(u32, u32)>,
    candidates: Vec<(u8, Point<N>)>,
}

impl<const N: usize, const A: usize> NearestTable<N, A> {
    /// A table of numbered points, for searches within these limits and with weights between these.
    pub(super) fn new(
        points: &[(u8, Point<N>)],
        limits: Limits<N>,
        weights: Limits<N>,
        axes: [Axis; A],
    ) -> Self {
        let mut table = Self { limits, axes, ranges: Vec::new(), candidates: Vec::new() };
        let cells: usize = axes.iter().map(|axis| usize::from(axis.parts)).product();
        for cell in 0..cells {
            let cell = table.limits_of(cell);
            let start = table.candidates.len() as u32;
            table.candidates.extend(points.iter().filter(|(_, point)| {
                !points.iter().any(|(_, other)| is_always_nearer(other, point, &weights, &cell))
            }));
            table.ranges.push((start, table.candidates.len() as u32));
        }
        table
    }

    /// Limits of the values in a combination of parts.
    fn limits_of(&self, mut cell: usize) -> Limits<N> {
        let mut limits = self.limits;
        for axis in self.axes.iter().rev() {
            let parts = usize::from(axis.parts);
            let [low, high] = self.limits[axis.value];
            let border = |part: usize| low + (high - low) * part as f32 / parts as f32;
            limits[axis.value] = [border(cell % parts), border(cell % parts + 1)];
            cell /= parts;
        }
        limits
    }

    /// The number of the nearest point; the first one if several are equally near. Outside of the
    /// limits, a near one.
    pub(super) fn nearest(&self, point: Point<N>, weights: Point<N>) -> u8 {
        let mut cell = 0;
        for axis in &self.axes {
            let [low, high] = self.limits[axis.value];
            let part = (point[axis.value] - low) / (high - low) * f32::from(axis.parts);
            // The conversion saturates.
            cell = cell * usize::from(axis.parts) + usize::from((part as u8).min(axis.parts - 1));
        }
        let (start, end) = self.ranges[cell];
        let mut best = (f32::INFINITY, 0);
        for (number, candidate) in &self.candidates[start as usize..end as usize] {
            let distance = squared_distance(candidate, &point, &weights);
            if distance < best.0 {
                best = (distance, *number);
            }
        }
        best.1
    }
}

/// The weighted squared distance of two points.
pub(super) fn squared_distance<const N: usize>(
    a: &Point<N>,
    b: &Point<N>,
    weights: &Point<N>,
) -> f32 {
    (0..N).map(|i| weights[i] * (a[i] - b[i]) * (a[i] - b[i])).sum()
}

/// Whether each place of the cell is nearer to `a` than to `b`, with all weights. The difference of
/// both squared distances is linear in each value and in each weight, so it is greatest at limits.
fn is_always_nearer<const N: usize>(
    a: &Point<N>,
    b: &Point<N>,
    weights: &Limits<N>,
    cell: &Limits<N>,
) -> bool {
    let greatest = |i: usize| {
        let at = |x: f32| (a[i] - x).powi(2) - (b[i] - x).powi(2);
        let difference = at(cell[i][0]).max(at(cell[i][1]));
        (weights[i][0] * difference).max(weights[i][1] * difference)
    };
    (0..N).map(greatest).sum::<f32>() < 0.0
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn a_table_finds_what_a_comparison_of_all_points_finds() {
        let mut rng = SmallRng::seed_from_u64(1);
        let limits = [[-0.5, 0.5], [0.0, 1.0], [0.0, 1.0]];
        let weights = [[1.0, 1.0], [0.3, 0.3], [0.0, 0.5]];
        let mut random =
            |limits: &Limits<3>| limits.map(|[a, b]| a + rng.random::<f32>() * (b - a));
        let points: Vec<(u8, Point<3>)> = (0..60).map(|n| (n, random(&limits))).collect();
        // One of two equal points is the first.
        let points: Vec<_> = points.iter().copied().chain([(60, points[7].1)]).collect();
        let axes = [Axis { value: 0, parts: 7 }, Axis { value: 2, parts: 3 }];
        let table = NearestTable::new(&points, limits, weights, axes);
        let cells = table.ranges.len();
        assert!(table.candidates.len() < cells * 25, "{} candidates", table.candidates.len());
        for _ in 0..20_000 {
            let (point, weights) = (random(&limits), random(&weights));
            let best = points.iter().min_by(|a, b| {
                let distance = |p: &Point<3>| squared_distance(p, &point, &weights);
                distance(&a.1).total_cmp(&distance(&b.1))
            });
            assert_eq!(table.nearest(point, weights), best.unwrap().0, "{point:?}");
        }
        // Outside of the limits it is some point.
        assert!(table.nearest([9.0, -9.0, f32::NAN], [1.0; 3]) <= 60);
    }
}
