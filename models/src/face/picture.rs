//! Pictures in the format that VP8 requires.

use character::Rect;

/// Bytes that are compared at once. Most parts of two poses are equal.
const COMPARED_BYTES: usize = 64;

/// A picture in planar YUV 4:2:0, BT.601, limited range: `width × height` of Y, then a quarter of
/// U, then a quarter of V, without gaps.
#[derive(Clone, PartialEq, Eq)]
pub struct I420 {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl I420 {
    /// A black picture. Both sides are even.
    ///
    /// # Panics
    /// If a side is odd.
    #[must_use]
    pub fn black(width: usize, height: usize) -> Self {
        assert!(width.is_multiple_of(2) && height.is_multiple_of(2), "width and height are even");
        let mut bytes = vec![128; width * height * 3 / 2];
        bytes[..width * height].fill(16);
        Self { width, height, bytes }
    }

    /// Converts `width × height` RGB triples. Coefficients of ITU-R BT.601; chroma is the mean of
    /// four pixels.
    ///
    /// # Panics
    /// If a side is odd or the slice has another length.
    #[must_use]
    pub fn from_rgb(rgb: &[u8], width: usize, height: usize) -> Self {
        let mut picture = Self::black(width, height);
        picture.set_rect(rgb, Rect::whole(width, height));
        picture
    }

    /// Converts a rectangle of RGB triples of a picture of this size, row by row, as
    /// [`Self::from_rgb`] does. The rectangle grows to even edges, because two by two pixels share
    /// their chroma.
    ///
    /// # Panics
    /// If the slice has another length or the rectangle exceeds the picture.
    pub fn set_rect(&mut self, rgb: &[u8], rect: Rect) {
        let (width, height) = (self.width, self.height);
        assert_eq!(rgb.len(), width * height * 3, "three bytes for each pixel");
        let (w, (x0, x1)) = (width / 2, (rect.x0 / 2, rect.x1.div_ceil(2)));
        let (u, v) = (width * height, width * height + w * height / 2);
        for y in rect.y0 / 2..rect.y1.div_ceil(2) {
            let row = |y: usize| (y * width + 2 * x0, y * width + 2 * x1);
            let [upper, lower] = [row(2 * y), row(2 * y + 1)];
            for (from, to) in [upper, lower] {
                let pixels = rgb[from * 3..to * 3].chunks_exact(3);
                for (luma, c) in self.bytes[from..to].iter_mut().zip(pixels) {
                    let [r, g, b] = [c[0], c[1], c[2]].map(f32::from);
                    *luma = to_byte(16.0 + 0.256_788 * r + 0.504_129 * g + 0.097_906 * b);
                }
            }
            let [upper, lower] =
                [upper, lower].map(|(from, to)| rgb[from * 3..to * 3].chunks_exact(6));
            for (x, (a, b)) in (x0..x1).zip(upper.zip(lower)) {
                // Sums of small integers and their quarters are exact.
                let mean = |c: usize| {
                    0.25 * [a[c], a[c + 3], b[c], b[c + 3]].map(f32::from).iter().sum::<f32>()
                };
                let [r, g, b] = [mean(0), mean(1), mean(2)];
                self.bytes[u + y * w + x] =
                    to_byte(128.0 - 0.148_223 * r - 0.290_993 * g + 0.439_216 * b);
                self.bytes[v + y * w + x] =
                    to_byte(128.0 + 0.439_216 * r - 0.367_788 * g - 0.071_427 * b);
            }
        }
    }

    /// Converts back to RGB triples, for display.
    #[must_use]
    pub fn to_rgb(&self) -> Vec<u8> {
        let (w, h) = (self.width, self.height);
        let (u, v) = (w * h, w * h * 5 / 4);
        (0..w * h)
            .flat_map(|i| {
                let c = (i / w / 2) * (w / 2) + i % w / 2;
                let y = 1.164_384 * (f32::from(self.bytes[i]) - 16.0);
                let (u, v) =
                    (f32::from(self.bytes[u + c]) - 128.0, f32::from(self.bytes[v + c]) - 128.0);
                [
                    to_byte(y + 1.596_027 * v),
                    to_byte(y - 0.391_762 * u - 0.812_968 * v),
                    to_byte(y + 2.017_232 * u),
                ]
            })
            .collect()
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

    /// All planes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All planes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Luma of a pixel, 16 (black) … 235 (white).
    #[must_use]
    pub fn luma(&self, x: usize, y: usize) -> u8 {
        self.bytes[y * self.width + x]
    }

    /// Which macroblocks (16×16, row by row) differ from `other` by more than `tolerance` in any
    /// sample.
    ///
    /// # Panics
    /// If the sizes differ.
    #[must_use]
    pub fn changed_blocks(&self, other: &Self, tolerance: u8) -> Vec<bool> {
        assert_eq!(
            (self.width, self.height),
            (other.width, other.height),
            "the pictures have the same size"
        );
        let columns = self.width.div_ceil(16);
        let mut changed = vec![false; columns * self.height.div_ceil(16)];
        let luma = self.width * self.height;
        let pieces = self.bytes.chunks(COMPARED_BYTES).zip(other.bytes.chunks(COMPARED_BYTES));
        for (at, (a, b)) in pieces.enumerate().filter(|(_, (a, b))| a != b) {
            for (i, (a, b)) in (at * COMPARED_BYTES..).zip(a.iter().zip(b)) {
                if a.abs_diff(*b) <= tolerance {
                    continue;
                }
                let (x, y) = if i < luma {
                    (i % self.width, i / self.width)
                } else {
                    let j = (i - luma) % (luma / 4);
                    (j % (self.width / 2) * 2, j / (self.width / 2) * 2)
                };
                changed[y / 16 * columns + x / 16] = true;
            }
        }
        changed
    }

    /// Copies macroblock number `at` (16×16, row by row) of `other`.
    ///
    /// # Panics
    /// If the sizes differ or the macroblock does not exist.
    pub fn copy_block(&mut self, other: &Self, at: usize) {
        assert_eq!(
            (self.width, self.height),
            (other.width, other.height),
            "the pictures have the same size"
        );
        let columns = self.width.div_ceil(16);
        let (x, y) = (at % columns * 16, at / columns * 16);
        for (first, half) in self.planes() {
            let (x0, x1) = (x >> half, (x + 16).min(self.width) >> half);
            for row in y >> half..(y + 16).min(self.height) >> half {
                let row = first + row * (self.width >> half);
                self.bytes[row + x0..row + x1].copy_from_slice(&other.bytes[row + x0..row + x1]);
            }
        }
    }

    /// First byte of each plane, and whether it has half the rows and columns (1) or all (0).
    fn planes(&self) -> [(usize, usize); 3] {
        let n = self.width * self.height;
        [(0, 0), (n, 1), (n * 5 / 4, 1)]
    }

    /// Peak signal-to-noise ratio of luma in dB; infinite for equal pictures.
    #[must_use]
    pub fn psnr(&self, other: &Self) -> f64 {
        self.plane_psnrs(other)[0]
    }

    /// As [`Self::psnr`], for luma and both chroma planes.
    ///
    /// # Panics
    /// If the sizes differ.
    #[must_use]
    pub fn plane_psnrs(&self, other: &Self) -> [f64; 3] {
        assert_eq!(
            (self.width, self.height),
            (other.width, other.height),
            "the pictures have the same size"
        );
        self.planes().map(|(first, half)| {
            let plane = first..first + ((self.width * self.height) >> (2 * half));
            let count = plane.len() as f64;
            let pairs = self.bytes[plane.clone()].iter().zip(&other.bytes[plane]);
            let sum: u64 = pairs.map(|(a, b)| u64::from(u32::from(a.abs_diff(*b)).pow(2))).sum();
            10.0 * (255.0 * 255.0 * count / sum as f64).log10()
        })
    }
}

fn to_byte(v: f32) -> u8 {
    (v + 0.5).clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_survive_the_way_to_yuv_and_back() {
        for colour in [[255, 255, 255], [0, 0, 0], [200, 30, 60], [20, 180, 240], [128, 128, 128]] {
            let rgb: Vec<u8> = colour.repeat(16);
            let back = I420::from_rgb(&rgb, 4, 4).to_rgb();
            assert!(
                back.iter().zip(&rgb).all(|(a, b)| a.abs_diff(*b) <= 3),
                "{colour:?} became {:?}",
                &back[..3]
            );
        }
    }

    #[test]
    fn a_single_changed_pixel_marks_its_macroblock_only() {
        let a = I420::black(48, 32);
        let mut b = a.clone();
        b.bytes_mut()[20 * 48 + 17] = 99;
        assert_eq!(a.changed_blocks(&b, 4), [false, false, false, false, true, false]);
    }
}
