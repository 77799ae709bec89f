//! An average face, which places the points that the object form of landmarks does not name.

use crate::picture::Point;
use crate::points::{POINTS, Points};

/// The mean of the nine stock characters, as the networks find them: x and y of each point, in
/// thousandths of the distance of the eyes' outer corners. The origin is the middle between these, and
/// x is the direction from the left to the right one.
const AVERAGE: [i16; 2 * POINTS] = [
    -7, 652, -10, 453, -9, 513, -61, 215, -10, 382, -8, 285, -5, 47, -478, 23, -3, -171, -3, -277,
    -2, -588, -7, 682, -6, 701, -5, 705, -5, 716, -4, 741, -4, 772, -4, 807, -4, 869, -10, 487,
    -64, 477, -698, -271, -284, 96, -352, 100, -414, 91, -497, 43, -227, 78, -375, -115, -302,
    -105, -443, -104, -488, -76, -544, 82, -230, 965, -500, 0, -716, 30, -610, 23, -334, 363, -91,
    639, -82, 696, -175, 645, -230, 653, -144, 690, -193, 684, -300, 731, -62, 450, -69, 381, -587,
    -177, -199, 200, -202, 416, -206, 377, -534, 343, -66, 291, -447, -263, -531, -236, -645, -396,
    -158, -194, -238, -73, -354, 667, -615, 637, -157, 454, -105, 479, -294, 663, -265, 665, -568,
    -287, -203, 441, -329, -256, -340, -317, -390, -557, -608, -339, -358, -434, -625, -212, -663,
    -235, -88, 674, -157, 673, -211, 669, -141, 466, -279, 663, -248, 685, -257, 665, -126, 440,
    -181, 677, -131, 689, -73, 699, -90, 864, -86, 799, -84, 762, -81, 732, -75, 711, -189, 689,
    -198, 695, -209, 710, -219, 731, -282, 588, -692, 313, -10, 498, -221, 680, -233, 680, -85,
    509, -184, 479, -94, 495, -269, 236, -380, 275, -216, 403, -549, -494, -514, -410, -473, -323,
    -245, 784, -179, -294, -192, -428, -213, -584, -468, 73, -609, 126, -190, 60, -551, -60, -153,
    157, -166, 397, -671, 167, -569, 178, -489, 206, -365, 203, -272, 180, -203, 150, -66, 66,
    -666, 308, -602, -82, -40, 483, -191, 268, -726, 15, -152, 113, -223, 403, -517, 1, -168, 349,
    -664, 473, -189, 32, -119, 314, -493, 804, -473, 868, -707, 316, -576, 716, -691, -110, -234,
    1024, -33, 495, -250, 314, -661, 33, -413, 55, -355, 65, -262, 696, -653, 439, -122, 1106,
    -295, 1014, -374, 954, -2, -423, -4, 1119, -296, 62, -241, 50, -206, 42, -646, -101, -250, -28,
    -309, -55, -370, -62, -429, -51, -465, -30, -724, -142, -452, 40, -8, 557, -219, 564, -159,
    446, -95, 559, -4, -61, -400, 889, -318, 955, -130, 1074, -549, 769, -207, 9, -110, 180, -4,
    1086, -215, 1068, -681, 461, -138, 700, -146, 714, -154, 738, -159, 771, -176, 831, -238, 673,
    -256, 666, -274, 655, -333, 622, -581, 481, -108, 107, -145, -34, -181, -14, -223, 666, -571,
    630, -89, -47, -206, 898, -7, 205, -65, 146, -6, 132, -152, 287, -5, 1027, -5, 945, -108, 939,
    -349, 765, -280, 451, -282, 839, -444, 434, -348, 509, -497, 531, -125, 1017, -188, 322, -393,
    818, -309, 894, -410, 684, -629, 550, -486, 700, -642, 594, -401, 579, -149, 224, -146, 429,
    -184, 440, -121, 386, -203, -109, -312, -157, -403, -167, -478, -155, -528, -120, -556, 11,
    -719, 173, -510, 115, -444, 139, -358, 145, -275, 134, -211, 112, -167, 88, -709, 162, -181,
    454, -110, 245, -104, 437, -69, 469, -102, 446, -164, 472, -58, 477, -51, 489, -167, 36, -132,
    47, -113, 56, -485, -14, -517, -45, 48, 216, 478, 24, 45, 478, 706, -268, 280, 96, 349, 100,
    413, 91, 496, 44, 222, 78, 374, -116, 299, -106, 442, -104, 488, -75, 543, 84, 222, 967, 500,
    0, 721, 33, 612, 25, 326, 366, 77, 641, 71, 697, 164, 649, 223, 658, 135, 693, 186, 688, 297,
    735, 42, 450, 51, 381, 589, -176, 191, 201, 186, 419, 192, 380, 530, 346, 49, 292, 447, -262,
    532, -235, 650, -393, 153, -194, 235, -74, 350, 673, 612, 640, 140, 457, 88, 480, 291, 669,
    262, 670, 570, -286, 188, 444, 326, -256, 338, -317, 390, -556, 612, -338, 357, -433, 628,
    -210, 668, -233, 76, 676, 148, 677, 205, 674, 124, 469, 277, 669, 244, 691, 254, 670, 107, 442,
    175, 681, 123, 692, 64, 701, 82, 866, 78, 800, 76, 763, 72, 734, 67, 713, 184, 693, 192, 699,
    204, 714, 214, 735, 274, 593, 694, 317, 217, 685, 230, 685, 68, 511, 169, 482, 77, 496, 262,
    238, 374, 277, 202, 406, 552, -493, 516, -409, 473, -322, 240, 788, 175, -294, 189, -427, 210,
    -583, 467, 74, 609, 129, 185, 59, 552, -58, 145, 158, 149, 399, 672, 170, 568, 180, 486, 208,
    361, 204, 266, 181, 196, 151, 57, 66, 664, 311, 604, -81, 20, 483, 181, 270, 733, 18, 145, 113,
    210, 406, 518, 1, 153, 351, 663, 477, 184, 32, 103, 314, 487, 808, 468, 872, 707, 318, 570,
    720, 697, -108, 227, 1027, 13, 495, 241, 316, 664, 35, 412, 56, 353, 65, 258, 701, 649, 443,
    114, 1107, 290, 1017, 370, 957, 293, 61, 237, 49, 201, 41, 649, -99, 247, -29, 307, -55, 368,
    -62, 428, -51, 465, -30, 732, -138, 451, 40, 208, 567, 141, 449, 81, 560, 394, 892, 311, 958,
    121, 1075, 545, 773, 203, 9, 99, 181, 208, 1069, 678, 464, 130, 703, 139, 717, 147, 741, 152,
    774, 170, 835, 234, 678, 252, 671, 270, 661, 328, 627, 576, 484, 100, 108, 139, -34, 176, -15,
    219, 672, 565, 634, 83, -47, 199, 901, 53, 146, 140, 289, 99, 940, 344, 769, 269, 455, 276,
    843, 437, 438, 340, 513, 491, 535, 117, 1019, 175, 324, 387, 822, 303, 897, 405, 688, 624, 553,
    480, 704, 638, 598, 395, 583, 138, 225, 128, 431, 167, 443, 103, 388, 199, -109, 309, -157,
    402, -167, 478, -154, 529, -120, 557, 12, 722, 176, 509, 116, 442, 140, 355, 146, 271, 134,
    205, 111, 161, 88, 714, 166, 165, 457, 97, 246, 84, 438, 49, 470, 83, 447, 149, 476, 39, 478,
    32, 489, 162, 35, 126, 47, 106, 56, 485, -14, 517, -45, -351, 14, -290, 30, -335, -43, -410,
    -2, -366, 71, 344, 19, 404, 4, 330, -40, 283, 33, 358, 77,
];

/// Lids and outer edges of the lips, from corner to corner. Their corners and their middles may be
/// named.
const CURVES: [&[usize]; 6] = [
    &[33, 246, 161, 160, 159, 158, 157, 173, 133],
    &[33, 7, 163, 144, 145, 153, 154, 155, 133],
    &[263, 466, 388, 387, 386, 385, 384, 398, 362],
    &[263, 249, 390, 373, 374, 380, 381, 382, 362],
    &[61, 185, 40, 39, 37, 0, 267, 269, 270, 409, 291],
    &[61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291],
];

/// The nearest named points on both sides of a point of a curve: the one in its middle and the one
/// at its end, and the fraction of the way from the first to the second one.
fn between_named(indices: &[usize], point: usize) -> Option<(usize, usize, f32)> {
    let named = |i: &usize| indices.contains(i);
    let (curve, at) = CURVES.iter().find_map(|curve| {
        let at = curve.iter().position(|i| *i == point)?;
        Some((curve, at))
    })?;
    let last = curve.len() - 1;
    let middle = (1..last).find(|place| named(&curve[*place]))?;
    let end = if at < middle { 0 } else { last };
    if !named(&curve[end]) {
        return None;
    }
    let along = |from: usize, to: usize| -> f32 {
        let line = &curve[from.min(to)..=from.max(to)];
        line.windows(2).map(|pair| distance(average(pair[0]), average(pair[1]))).sum()
    };
    Some((curve[middle], curve[end], along(middle, at) / along(middle, end)))
}

fn average(i: usize) -> Point {
    [2 * i, 2 * i + 1].map(|i| f32::from(AVERAGE[i]) / 1000.0)
}

fn distance(a: Point, b: Point) -> f32 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

/// Places all points: a similarity brings the average face to the `named` points (pixels, with their
/// numbers in `indices`) as closely as possible, and what is left of the distance at each of them moves
/// the points around it (inverse distance weighting by Shepard). Lids and lips stay curves: between
/// two named points, this movement is a parabola of the way along the line.
pub(crate) fn bend<const N: usize>(indices: &[usize; N], named: &[Point; N]) -> Points {
    let from = indices.map(average);
    let similarity = Similarity::between(&from, named);
    let moved = from.map(|point| similarity.apply(point));
    let unit = similarity.scale();
    std::array::from_fn(|i| {
        if let Some(place) = indices.iter().position(|index| *index == i) {
            return named[place];
        }
        let [x, y] = similarity.apply(average(i));
        if let Some((middle, end, way)) = between_named(indices, i) {
            let rest = |index: usize| {
                let place = indices.iter().position(|i| *i == index);
                place.map_or([0.0; 2], |at| [0, 1].map(|axis| named[at][axis] - moved[at][axis]))
            };
            let (middle, end, weight) = (rest(middle), rest(end), way * way);
            return [
                x + middle[0] * (1.0 - weight) + end[0] * weight,
                y + middle[1] * (1.0 - weight) + end[1] * weight,
            ];
        }
        let (mut shift, mut total) = ([0.0; 2], 0.0);
        for (moved, named) in moved.iter().zip(named) {
            let distance = ((x - moved[0]).powi(2) + (y - moved[1]).powi(2)) / (unit * unit);
            let weight = 1.0 / (distance + 1e-6).powi(2);
            total += weight;
            shift[0] += weight * (named[0] - moved[0]);
            shift[1] += weight * (named[1] - moved[1]);
        }
        [x + shift[0] / total, y + shift[1] / total]
    })
}

/// A rotation with a scale, and a shift: complex numbers `a·z + b`.
struct Similarity {
    a: Point,
    b: Point,
}

impl Similarity {
    /// The least-squares solution, by the means and the products of both sides.
    fn between<const N: usize>(from: &[Point; N], to: &[Point; N]) -> Self {
        let mean = |points: &[Point; N]| {
            let sum = points.iter().fold([0.0; 2], |sum, p| [sum[0] + p[0], sum[1] + p[1]]);
            sum.map(|v| v / N as f32)
        };
        let (from_mean, to_mean) = (mean(from), mean(to));
        let (mut real, mut imaginary, mut squares) = (0.0, 0.0, 1e-12);
        for (p, q) in from.iter().zip(to) {
            let (p, q) = (
                [p[0] - from_mean[0], p[1] - from_mean[1]],
                [q[0] - to_mean[0], q[1] - to_mean[1]],
            );
            real += p[0] * q[0] + p[1] * q[1];
            imaginary += p[0] * q[1] - p[1] * q[0];
            squares += p[0] * p[0] + p[1] * p[1];
        }
        let mut similarity = Self { a: [real / squares, imaginary / squares], b: [0.0; 2] };
        let [x, y] = similarity.apply(from_mean);
        similarity.b = [to_mean[0] - x, to_mean[1] - y];
        similarity
    }

    fn apply(&self, [x, y]: Point) -> Point {
        let Self { a, b } = self;
        [a[0] * x - a[1] * y + b[0], a[1] * x + a[0] * y + b[1]]
    }

    fn scale(&self) -> f32 {
        self.a[0].hypot(self.a[1]).max(f32::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_points_stay_and_the_others_follow_them() {
        // The average face, doubled, turned by a quarter and moved.
        let place = |i: usize| {
            let [x, y] = [2 * i, 2 * i + 1].map(|i| f32::from(AVERAGE[i]));
            [500.0 - 2.0 * y, 100.0 + 2.0 * x]
        };
        let indices = [33, 263, 61, 291, 152, 2];
        let mut named = indices.map(place);
        let bent = bend(&indices, &named);
        for (i, [x, y]) in bent.into_iter().enumerate() {
            let [to_x, to_y] = place(i);
            assert!((x - to_x).abs() < 0.1 && (y - to_y).abs() < 0.1, "point {i}");
        }
        // A lower chin takes its neighbours along, and leaves the eyes.
        named[4][0] -= 50.0;
        let lower = bend(&indices, &named);
        assert_eq!(lower[152], named[4]);
        assert!(lower[148][0] < bent[148][0] - 20.0);
        assert!((lower[33][0] - bent[33][0]).abs() < 0.1);
    }

    #[test]
    fn a_lid_with_a_named_middle_stays_a_curve() {
        let indices = [33, 133, 159, 145, 263, 362, 386, 374, 152];
        let mut named = indices.map(average);
        named[2][1] -= 0.08;
        let bent = bend(&indices, &named);
        // Without a kink at the middle: both neighbours move nearly as far as it.
        let rise = |i: usize| bent[159][1] - bent[i][1] - (average(159)[1] - average(i)[1]);
        assert!(rise(160).abs() < 0.3 * rise(33).abs(), "{} {}", rise(160), rise(33));
        assert!(rise(158).abs() < 0.3 * rise(133).abs(), "{} {}", rise(158), rise(133));
        // It is convex: no point is below the line of its neighbours.
        let lid: Vec<Point> = CURVES[0].iter().map(|i| bent[*i]).collect();
        for three in lid.windows(3) {
            let [a, b, c] = [three[0], three[1], three[2]];
            let turn = (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0]);
            assert!(turn > 0.0, "{three:?}");
        }
    }
}
