//! Outlines of a face as functions over a width: lids, brows, edges of the lips.

use glam::Vec2;

const STEPS: usize = 128;

/// A function over −1 … 1, tabulated.
#[derive(Clone, Debug)]
pub(crate) struct Curve(Vec<f32>);

impl Curve {
    pub(crate) fn from_fn(f: impl Fn(f32) -> f32) -> Self {
        Self((0..=STEPS).map(|i| f(i as f32 / STEPS as f32 * 2.0 - 1.0)).collect())
    }

    /// A smooth curve through points whose x is the position. Between two points it does not leave
    /// their range (Fritsch and Carlson, "Monotone piecewise cubic interpolation", 1980); outside
    /// of all points it is constant.
    pub(crate) fn through(points: impl IntoIterator<Item = Vec2>) -> Self {
        let mut points: Vec<Vec2> = points.into_iter().collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        // A steep step is no outline of a face: points at one position are one point.
        points.dedup_by(|b, a| b.x - a.x < 1e-3);
        let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) else {
            return Self::from_fn(|_| 0.0);
        };
        let rises: Vec<f32> =
            points.windows(2).map(|p| (p[1].y - p[0].y) / (p[1].x - p[0].x)).collect();
        let slope = |i: usize| -> f32 {
            match (i.checked_sub(1).and_then(|i| rises.get(i)), rises.get(i)) {
                (Some(a), Some(b)) if a * b > 0.0 => 2.0 * a * b / (a + b),
                (Some(_), Some(_)) | (None, None) => 0.0,
                (Some(only), None) | (None, Some(only)) => *only,
            }
        };
        Self::from_fn(|u| {
            if u <= first.x {
                return first.y;
            }
            let i = points.partition_point(|p| p.x <= u);
            let Some(b) = points.get(i) else { return last.y };
            let a = points[i - 1];
            let width = b.x - a.x;
            let t = (u - a.x) / width;
            let (t2, t3) = (t * t, t * t * t);
            (2.0 * t3 - 3.0 * t2 + 1.0) * a.y
                + (t3 - 2.0 * t2 + t) * width * slope(i - 1)
                + (3.0 * t2 - 2.0 * t3) * b.y
                + (t3 - t2) * width * slope(i)
        })
    }

    /// Value at `u`; outside of −1 … 1 that of the end.
    #[inline]
    pub(crate) fn at(&self, u: f32) -> f32 {
        let x = ((u + 1.0) * 0.5).clamp(0.0, 1.0) * STEPS as f32;
        let i = (x as usize).min(STEPS - 1);
        self.0[i] + (self.0[i + 1] - self.0[i]) * (x - i as f32)
    }
}

/// 0 at `a`, 1 at `b`, smooth at both ends; `a` may be the larger one.
#[inline]
pub(crate) fn smoothstep(a: f32, b: f32, x: f32) -> f32 {
    let t = ((x - a) / (b - a)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// exp(−x²).
#[inline]
pub(crate) fn gaussian(x: f32) -> f32 {
    // Denormal numbers are slow.
    if x * x > 80.0 { 0.0 } else { (-x * x).exp() }
}

/// 1 at 0, 0 from 1 on, smooth at both ends: like a Gaussian, but of finite reach.
#[inline]
pub(crate) fn bump(square: f32) -> f32 {
    let k = (1.0 - square).max(0.0);
    k * k
}

#[cfg(test)]
mod tests {
    use glam::vec2;

    use super::*;

    #[test]
    fn a_curve_passes_through_its_points_without_overshoot() {
        let points = [vec2(-1.0, 3.0), vec2(-0.5, 1.0), vec2(0.0, 1.0), vec2(0.75, 4.0)];
        let curve = Curve::through(points);
        for p in points {
            assert!((curve.at(p.x) - p.y).abs() < 1e-4, "{p}: {}", curve.at(p.x));
        }
        for i in -100..=100 {
            let (u, y) = (i as f32 / 100.0, curve.at(i as f32 / 100.0));
            assert!((1.0..=4.0).contains(&y), "{u}: {y}");
        }
        assert!((curve.at(1.0) - 4.0).abs() < 1e-4, "constant outside of the points");
    }

    #[test]
    fn a_curve_accepts_any_points() {
        for points in [vec![], vec![vec2(0.0, 7.0)], vec![vec2(0.2, 1.0), vec2(0.2, 9.0)]] {
            assert!(Curve::through(points.clone()).at(0.3).is_finite(), "{points:?}");
        }
    }
}
