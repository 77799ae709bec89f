//! Finds faces: the detector looks at the whole picture, at four parts of it, and at all quarter
//! turns.

use crate::networks::{ANCHORS, BOX_NUMBERS, DETECTOR_SIDE, Networks, sigmoid};
use crate::picture::{Frame, Point, Pyramid};

/// A box with at least this score is a candidate.
const MIN_SCORE: f32 = 0.5;
/// Side of a part, as a share of the picture's longer side: the parts overlap.
const PART: f32 = 0.55;
/// Candidates whose centres are closer than this share of the wider one are the same face.
const SAME_FACE: f32 = 0.5;

/// A face in pixels of the picture.
#[derive(Clone, Debug)]
pub(crate) struct Detection {
    /// How sure the detector is, 0.5 … 1.
    pub(crate) score: f32,
    /// Width of the box.
    pub(crate) width: f32,
    pub(crate) centre: Point,
    /// The person's right eye (left in an upright picture) and left eye.
    eyes: [Point; 2],
}

impl Detection {
    /// Angle of the line of the eyes, in radians.
    pub(crate) fn turn(&self) -> f32 {
        let [right, left] = self.eyes;
        (left[1] - right[1]).atan2(left[0] - right[0])
    }
}

/// All faces, the surest first.
pub(crate) fn detect(networks: &Networks, pyramid: &Pyramid<'_>) -> Vec<Detection> {
    let picture = pyramid.base();
    let size = [picture.width() as f32, picture.height() as f32];
    let side = size[0].max(size[1]);
    let centre = size.map(|length| length / 2.0);
    let mut found = Vec::new();
    let look = |found: &mut Vec<Detection>, frame: Frame| {
        found.extend(look(networks, pyramid, frame));
    };
    // The detector sees 128 × 128 pixels: it misses a small face beside a large one.
    let look_at_parts = |found: &mut Vec<Detection>, turn: f32| {
        let part = side * PART;
        let places = size.map(|length| {
            if length <= part { vec![length / 2.0] } else { vec![part / 2.0, length - part / 2.0] }
        });
        for y in &places[1] {
            for x in &places[0] {
                look(found, Frame::square([*x, *y], part, turn));
            }
        }
    };
    for quarter in 0..4 {
        let turn = quarter as f32 * std::f32::consts::FRAC_PI_2;
        let best = |found: &[Detection]| found.iter().map(|f| f.score).fold(0.0, f32::max);
        let before = best(&found);
        let first = found.len();
        look(&mut found, Frame::square(centre, side, turn));
        // Also in a turned picture, if its faces are surer.
        if quarter == 0 || best(&found[first..]) > before {
            look_at_parts(&mut found, turn);
        }
    }
    without_repetitions(found)
}

/// The surest of the candidates at each place, the surest first.
fn without_repetitions(mut found: Vec<Detection>) -> Vec<Detection> {
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut unique: Vec<Detection> = Vec::new();
    for candidate in found {
        let repeats = |other: &Detection| {
            distance(other.centre, candidate.centre) < SAME_FACE * other.width.max(candidate.width)
        };
        if !unique.iter().any(repeats) {
            unique.push(candidate);
        }
    }
    unique
}

pub(crate) fn distance([x0, y0]: Point, [x1, y1]: Point) -> f32 {
    (x1 - x0).hypot(y1 - y0)
}

/// Centre of an anchor in fractions of the frame. The first layer has 16 × 16 places with two
/// anchors, the second one 8 × 8 with six.
fn anchor(i: usize) -> Point {
    let (place, side) = if i < 512 { (i / 2, 16) } else { ((i - 512) / 6, 8) };
    [place % side, place / side].map(|at| (at as f32 + 0.5) / side as f32)
}

/// The faces of one frame.
fn look(networks: &Networks, pyramid: &Pyramid<'_>, frame: Frame) -> Vec<Detection> {
    let Some([boxes, logits]) = networks.detect(pyramid, frame) else { return Vec::new() };
    let side = DETECTOR_SIDE as f32;
    let candidates = boxes.chunks_exact(BOX_NUMBERS).zip(&logits).take(ANCHORS).enumerate();
    let found = candidates.filter_map(|(i, (numbers, logit))| {
        let score = sigmoid(*logit);
        // False for a NaN, too.
        let sure = score >= MIN_SCORE;
        let anchor = anchor(i);
        let point = |n: usize| {
            frame.to_picture([numbers[n] / side + anchor[0], numbers[n + 1] / side + anchor[1]])
        };
        sure.then(|| Detection {
            score,
            width: numbers[2] / side * frame.size[0],
            centre: point(0),
            eyes: [point(4), point(6)],
        })
    });
    without_repetitions(found.filter(|face| face.width >= 1.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_lie_in_the_centres_of_their_places() {
        assert_eq!(anchor(0), [1.0 / 32.0, 1.0 / 32.0]);
        assert_eq!(anchor(1), anchor(0));
        assert_eq!(anchor(511), [31.0 / 32.0, 31.0 / 32.0]);
        assert_eq!(anchor(512), [1.0 / 16.0, 1.0 / 16.0]);
        assert_eq!(anchor(517), anchor(512));
        assert_eq!(anchor(ANCHORS - 1), [15.0 / 16.0, 15.0 / 16.0]);
    }

    #[test]
    fn of_candidates_at_one_place_the_surest_stays() {
        let face = |score, x| Detection {
            score,
            width: 100.0,
            centre: [x, 50.0],
            eyes: [[0.0; 2], [1.0, 0.0]],
        };
        let unique = without_repetitions(vec![face(0.6, 50.0), face(0.9, 70.0), face(0.7, 180.0)]);
        assert_eq!(unique.iter().map(|f| f.score).collect::<Vec<_>>(), [0.9, 0.7]);
    }
}
