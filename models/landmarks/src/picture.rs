//! A picture in memory, its smaller versions, and samples of it.
//!
//! Coordinates are continuous: pixel `(i, j)` covers `i..i + 1 × j..j + 1`, so its centre is at
//! `(i + 0.5, j + 0.5)`.

/// A point in pixels, x to the right and y down.
pub type Point = [f32; 2];

/// A picture: sRGB, 8 bits per channel, without alpha.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// A picture from RGB triples, row by row. `None` if a side is 0 or the length is another.
    #[must_use]
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Option<Self> {
        let length = width.checked_mul(height)?.checked_mul(3)?;
        (length > 0 && rgb.len() == length).then_some(Self { width, height, rgb })
    }

    /// Pixels in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// RGB triples, row by row.
    #[must_use]
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// A pixel, 0 … 255. Outside, the nearest pixel of the edge.
    #[inline]
    pub(crate) fn pixel(&self, x: i64, y: i64) -> [f32; 3] {
        let x = x.clamp(0, self.width as i64 - 1) as usize;
        let y = y.clamp(0, self.height as i64 - 1) as usize;
        let at = (y * self.width + x) * 3;
        [self.rgb[at], self.rgb[at + 1], self.rgb[at + 2]].map(f32::from)
    }

    /// Whether a point lies in the picture.
    #[must_use]
    pub fn contains(&self, [x, y]: Point) -> bool {
        (0.0..=self.width as f32).contains(&x) && (0.0..=self.height as f32).contains(&y)
    }

    /// The colour at a point by linear interpolation.
    #[inline]
    fn bilinear(&self, [x, y]: Point) -> [f32; 3] {
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (fx, fy) = (x - left, y - top);
        let (left, top) = (left as i64, top as i64);
        let (a, b) = (self.pixel(left, top), self.pixel(left + 1, top));
        let (c, d) = (self.pixel(left, top + 1), self.pixel(left + 1, top + 1));
        std::array::from_fn(|i| {
            let (upper, lower) = (a[i] + (b[i] - a[i]) * fx, c[i] + (d[i] - c[i]) * fx);
            upper + (lower - upper) * fy
        })
    }

    /// The colour at a point by Catmull-Rom interpolation, which keeps edges sharp in a magnified
    /// picture.
    fn bicubic(&self, [x, y]: Point) -> [f32; 3] {
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (across, down) = (catmull_rom(x - left), catmull_rom(y - top));
        let (left, top) = (left as i64 - 1, top as i64 - 1);
        let mut sum = [0.0; 3];
        for (dy, down) in (0..).zip(down) {
            for (dx, across) in (0..).zip(across) {
                let pixel = self.pixel(left + dx, top + dy);
                sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += value * across * down);
            }
        }
        sum
    }

    /// The picture with half the rows and columns: each pixel is the mean of four.
    fn halved(&self) -> Self {
        let (width, height) = (self.width.div_ceil(2), self.height.div_ceil(2));
        let mut rgb = Vec::with_capacity(width * height * 3);
        let row = |y: usize| &self.rgb[y.min(self.height - 1) * self.width * 3..][..self.width * 3];
        for y in 0..height {
            let (upper, lower) = (row(2 * y), row(2 * y + 1));
            for x in 0..width {
                let left = 6 * x;
                let right = if 2 * x + 1 < self.width { left + 3 } else { left };
                for c in 0..3 {
                    let at = |row: &[u8], first: usize| u16::from(row[first + c]);
                    let sum =
                        at(upper, left) + at(upper, right) + at(lower, left) + at(lower, right);
                    rgb.push(((sum + 2) / 4) as u8);
                }
            }
        }
        Self { width, height, rgb }
    }
}

/// Weights of four neighbours for a place `t` of the way from the second to the third.
fn catmull_rom(t: f32) -> [f32; 4] {
    [
        ((-0.5 * t + 1.0) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1.0,
        ((-1.5 * t + 2.0) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    ]
}

/// What is sampled outside the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Border {
    Black,
    /// The nearest pixel of the edge.
    Nearest,
    /// The colours at the nearest place of the edge, the more blurred the further outside.
    Blurred,
}

/// A rectangle of a picture that may be turned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) centre: Point,
    pub(crate) size: [f32; 2],
    /// Angle of its upper edge to the x axis, in radians, clockwise.
    pub(crate) turn: f32,
}

impl Frame {
    pub(crate) fn square(centre: Point, side: f32, turn: f32) -> Self {
        Self { centre, size: [side, side], turn }
    }

    /// The point of the picture at fractions of the frame's width and height.
    pub(crate) fn to_picture(self, [x, y]: Point) -> Point {
        let (sin, cos) = self.turn.sin_cos();
        let (u, v) = ((x - 0.5) * self.size[0], (y - 0.5) * self.size[1]);
        [self.centre[0] + u * cos - v * sin, self.centre[1] + u * sin + v * cos]
    }

    /// Reverses [`Self::to_picture`].
    pub(crate) fn fractions_of(self, [x, y]: Point) -> Point {
        let (sin, cos) = self.turn.sin_cos();
        let (u, v) = (x - self.centre[0], y - self.centre[1]);
        [(u * cos + v * sin) / self.size[0] + 0.5, (v * cos - u * sin) / self.size[1] + 0.5]
    }
}

/// A picture with its smaller versions, so that a sample of a large region is the mean of it.
pub(crate) struct Pyramid<'a> {
    base: &'a Picture,
    /// Each has half the side of the one before.
    smaller: Vec<Picture>,
}

/// The smallest version has at most this side, in pixels.
const SMALLEST_SIDE: usize = 8;

impl<'a> Pyramid<'a> {
    pub(crate) fn new(base: &'a Picture) -> Self {
        let mut smaller: Vec<Picture> = Vec::new();
        loop {
            let last = smaller.last().unwrap_or(base);
            if last.width.max(last.height) <= SMALLEST_SIDE {
                break Self { base, smaller };
            }
            smaller.push(last.halved());
        }
    }

    pub(crate) fn base(&self) -> &'a Picture {
        self.base
    }

    /// The colour around the nearest place of the edge to a point outside: the mean of about as many
    /// pixels in each direction as the point is away.
    fn blurred(&self, [x, y]: Point) -> [f32; 3] {
        let place = [x.clamp(0.0, self.base.width as f32), y.clamp(0.0, self.base.height as f32)];
        let extent = (x - place[0]).hypot(y - place[1]);
        let level = extent.max(1.0).log2().min(self.smaller.len() as f32);
        let colour = |level: usize| {
            let picture = level.checked_sub(1).map_or(self.base, |at| &self.smaller[at]);
            picture.bilinear(place.map(|at| at / (1_u64 << level) as f32))
        };
        let finer = colour(level as usize);
        let coarser = colour((level as usize + 1).min(self.smaller.len()));
        std::array::from_fn(|i| finer[i] + (coarser[i] - finer[i]) * level.fract())
    }

    /// Samples `frame` as a picture of `width × height`; calls `put` with each colour, 0 … 255, row
    /// by row.
    pub(crate) fn sample(
        &self,
        frame: Frame,
        [width, height]: [usize; 2],
        border: Border,
        mut put: impl FnMut([f32; 3]),
    ) {
        let step = frame.size[0] / width as f32;
        let level = (step.max(1.0).log2() as usize).min(self.smaller.len());
        let picture = if level == 0 { self.base } else { &self.smaller[level - 1] };
        let scale = 1.0 / (1_u64 << level) as f32;
        // More than one pixel for each sample: the mean of four samples.
        let fine = if step * scale > 1.0 { 2 } else { 1 };
        let magnifies = step < 1.0;
        let part = 1.0 / (fine * fine) as f32;
        for y in 0..height {
            for x in 0..width {
                let mut sum = [0.0; 3];
                for (dx, dy) in (0..fine).flat_map(|dy| (0..fine).map(move |dx| (dx, dy))) {
                    let at = |i: usize, d: usize, count: usize| {
                        (i as f32 + (d as f32 + 0.5) / fine as f32) / count as f32
                    };
                    let [x, y] = frame.to_picture([at(x, dx, width), at(y, dy, height)]);
                    if border == Border::Black && !self.base.contains([x, y]) {
                        continue;
                    }
                    let at = [x * scale, y * scale];
                    let colour = if border == Border::Blurred && !self.base.contains([x, y]) {
                        self.blurred([x, y])
                    } else if magnifies {
                        picture.bicubic(at)
                    } else {
                        picture.bilinear(at)
                    };
                    sum.iter_mut().zip(colour).for_each(|(sum, value)| *sum += value * part);
                }
                put(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: usize, height: usize) -> Picture {
        let rgb =
            (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 7])).collect();
        Picture::new(width, height, rgb).unwrap()
    }

    #[test]
    fn a_sampled_frame_has_the_colours_of_its_place() {
        let picture = gradient(200, 160);
        let pyramid = Pyramid::new(&picture);
        // Magnified, of the same size, and of a quarter of the size.
        for (side, count) in [(20.0, 40), (64.0, 64), (128.0, 32)] {
            for turn in [0.0, 0.3, 2.0] {
                let frame = Frame::square([100.0, 80.0], side, turn);
                let mut at = 0;
                pyramid.sample(frame, [count, count], Border::Nearest, |colour| {
                    let place = [at % count, at / count].map(|i| (i as f32 + 0.5) / count as f32);
                    let [x, y] = frame.to_picture(place);
                    let error = (colour[0] + 0.5 - x).abs().max((colour[1] + 0.5 - y).abs());
                    let inside = x > 4.0 && x < 196.0 && y > 4.0 && y < 156.0;
                    assert!(error < 1.1 || !inside, "{colour:?} at {x}, {y}");
                    assert!((colour[2] - 7.0).abs() < 1e-3);
                    at += 1;
                });
                assert_eq!(at, count * count);
            }
        }
    }

    #[test]
    fn outside_is_black_or_the_edge() {
        let picture = Picture::new(2, 2, vec![200; 12]).unwrap();
        let pyramid = Pyramid::new(&picture);
        let frame = Frame::square([1.0, 1.0], 4.0, 0.0);
        for (border, corner) in [(Border::Black, 0.0), (Border::Nearest, 200.0)] {
            let mut colours = Vec::new();
            pyramid.sample(frame, [4, 4], border, |colour| colours.push(colour[0]));
            assert_eq!((colours[0], colours[5]), (corner, 200.0), "{border:?}");
        }
    }

    #[test]
    fn a_frame_maps_back_to_its_fractions() {
        let frame = Frame { centre: [30.0, 40.0], size: [10.0, 20.0], turn: 0.7 };
        let [x, y] = frame.fractions_of(frame.to_picture([0.2, 0.9]));
        assert!((x - 0.2).abs() < 1e-5 && (y - 0.9).abs() < 1e-5);
    }

    #[test]
    fn a_picture_has_three_bytes_for_each_pixel() {
        assert!(Picture::new(2, 2, vec![0; 12]).is_some());
        assert!(Picture::new(2, 2, vec![0; 11]).is_none());
        assert!(Picture::new(0, 2, Vec::new()).is_none());
        assert!(Picture::new(usize::MAX, 2, Vec::new()).is_none());
    }
}
