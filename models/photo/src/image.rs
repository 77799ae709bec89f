//! A photo in memory, and its colours between the pixels.

use glam::{Vec2, Vec3};

use crate::{Error, Photo};

/// Minimum and maximum of a side, in pixels.
const SIDES: std::ops::RangeInclusive<usize> = 64..=2048;

/// Levels of red, green and blue, 0 … 255.
pub(crate) struct Image {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pixels: Vec<Vec3>,
}

impl Image {
    pub(crate) fn new(photo: &Photo) -> Result<Self, Error> {
        let &Photo { width, height, ref rgb } = photo;
        if !SIDES.contains(&width) || !SIDES.contains(&height) {
            return Err(Error::Size { width, height });
        }
        if rgb.len() != width * height * 3 {
            return Err(Error::Length { length: rgb.len(), width, height });
        }
        let pixels = rgb.chunks_exact(3).map(|c| Vec3::new(c[0].into(), c[1].into(), c[2].into()));
        Ok(Self { width, height, pixels: pixels.collect() })
    }

    /// A pixel; outside of the photo the nearest one.
    #[inline]
    pub(crate) fn pixel(&self, x: i32, y: i32) -> Vec3 {
        let x = x.clamp(0, self.width as i32 - 1) as usize;
        let y = y.clamp(0, self.height as i32 - 1) as usize;
        self.pixels[y * self.width + x]
    }

    /// The color at a place between pixels, whose centers are whole numbers. Catmull and Rom, "A
    /// class of local interpolating splines", 1974: sharper than a linear one.
    #[inline]
    pub(crate) fn sample(&self, p: Vec2) -> Vec3 {
        let end = Vec2::new(self.width as f32, self.height as f32);
        let p = p.clamp(Vec2::splat(-2.0), end + 2.0);
        let floor = p.floor();
        let part = p - floor;
        let (x, y) = (floor.x as i32, floor.y as i32);
        if part == Vec2::ZERO {
            return self.pixel(x, y);
        }
        let (wx, wy) = (weights(part.x), weights(part.y));
        let row = |y: i32| {
            self.pixel(x - 1, y) * wx[0]
                + self.pixel(x, y) * wx[1]
                + self.pixel(x + 1, y) * wx[2]
                + self.pixel(x + 2, y) * wx[3]
        };
        row(y - 1) * wy[0] + row(y) * wy[1] + row(y + 1) * wy[2] + row(y + 2) * wy[3]
    }

    /// Mean color of a square whose sides have `2 × radius + 1` pixels.
    pub(crate) fn mean(&self, p: Vec2, radius: i32) -> Vec3 {
        let end = Vec2::new(self.width as f32, self.height as f32);
        let (at, radius) = (p.clamp(Vec2::ZERO, end).round(), radius.clamp(0, 64));
        let square = (-radius..=radius).flat_map(|y| (-radius..=radius).map(move |x| (x, y)));
        let sum: Vec3 = square.map(|(x, y)| self.pixel(at.x as i32 + x, at.y as i32 + y)).sum();
        sum / ((2 * radius + 1) * (2 * radius + 1)) as f32
    }
}

/// Weights of four samples in a row, `t` (0 … 1) after the second one.
#[inline]
pub(crate) fn weights(t: f32) -> [f32; 4] {
    [
        ((-0.5 * t + 1.0) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1.0,
        ((-1.5 * t + 2.0) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    ]
}

/// Brightness of levels, 0 … 255.
#[inline]
pub(crate) fn luma(c: Vec3) -> f32 {
    c.dot(Vec3::new(0.30, 0.59, 0.11))
}

/// 0 grey … 1 pure color.
pub(crate) fn saturation(c: Vec3) -> f32 {
    (c.max_element() - c.min_element()) / c.max_element().max(1.0)
}

#[cfg(test)]
mod tests {
    use glam::vec2;

    use super::*;

    #[test]
    fn samples_between_pixels_continue_a_gradient() {
        let rgb = (0..64 * 64).flat_map(|i| [(i % 64) as u8 * 2, (i / 64) as u8 * 3, 9]).collect();
        let image = Image::new(&Photo { width: 64, height: 64, rgb }).unwrap();
        let c = image.sample(vec2(20.25, 31.5));
        assert!((c - Vec3::new(40.5, 94.5, 9.0)).length() < 1e-3, "{c}");
        assert_eq!(image.sample(vec2(7.0, 8.0)), Vec3::new(14.0, 24.0, 9.0));
        for p in [vec2(-1e9, 3.0), vec2(f32::INFINITY, -1e30)] {
            assert!(image.sample(p).is_finite(), "{p}");
        }
    }

    #[test]
    fn a_photo_of_another_length_or_size_is_refused() {
        let photo = |width, height, length| Photo { width, height, rgb: vec![0; length] };
        assert!(matches!(Image::new(&photo(64, 64, 9)), Err(Error::Length { length: 9, .. })));
        assert!(matches!(Image::new(&photo(9, 64, 9 * 64 * 3)), Err(Error::Size { width: 9, .. })));
    }
}
