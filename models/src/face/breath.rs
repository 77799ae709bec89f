//! Breathing: what is below the chin rises and sinks a little.
//!
//! Not drawn but moved: a shift of whole quarters of a pixel is what VP8's motion vectors say, so that a breath costs next to nothing.

/// How far the chest rises, as a share of the picture's height: 1.5 pixels of 512.
const RISE: f32 = 1.5 / 512.0;
/// Over this share of the height a shift grows from nothing to all of it: the neck gives.
const NECK: f32 = 0.09;

/// `rgb`, a picture of `size` (width, height), with everything below the row `chest` lifted by `breath` (0 … 1) of [`RISE`], rounded to
/// quarters of a pixel.
pub(super) fn lift(rgb: Vec<u8>, (width, height): (usize, usize), chest: usize, breath: f32) -> Vec<u8> {
    let rise = (breath * RISE * height as f32 * 4.0).round() / 4.0;
    if rise == 0.0 {
        return rgb;
    }
    let mut out = rgb.clone();
    let stride = width * 3;
    for y in chest..height {
        let k = ((y - chest) as f32 / (NECK * height as f32)).min(1.0);
        let from = y as f32 + rise * k * k * (3.0 - 2.0 * k);
        let (whole, part) = (from.floor(), from.fract());
        let row = |d: i32| {
            let y = (whole as i32 + d).clamp(0, height as i32 - 1) as usize;
            &rgb[y * stride..(y + 1) * stride]
        };
        let rows = [row(-1), row(0), row(1), row(2)];
        let weights = catmull_rom(part);
        for (x, level) in out[y * stride..(y + 1) * stride].iter_mut().enumerate() {
            let sum: f32 = rows.iter().zip(weights).map(|(row, weight)| f32::from(row[x]) * weight).sum();
            *level = sum.round().clamp(0.0, 255.0) as u8;
        }
    }
    out
}

/// Weights of the four samples around a point that lies `t` (0 … 1) behind the second: Catmull and Rom, "A class of local interpolating
/// splines", 1974.
fn catmull_rom(t: f32) -> [f32; 4] {
    let (t2, t3) = (t * t, t * t * t);
    [-t3 + 2.0 * t2 - t, 3.0 * t3 - 5.0 * t2 + 2.0, -3.0 * t3 + 4.0 * t2 + t, t3 - t2].map(|w| w * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (usize, usize) = (8, 512);

    /// Rows that get lighter downwards, by a quarter of a level each.
    fn ramp() -> Vec<u8> {
        (0..SIZE.0 * SIZE.1 * 3).map(|i| (i / (SIZE.0 * 3) / 4 + 20) as u8).collect()
    }

    #[test]
    fn nothing_above_the_chest_moves_and_all_far_below_it_by_the_same() {
        let mut rgb = ramp();
        // A line that can be found again.
        let stride = SIZE.0 * 3;
        let line = |y: usize| y * stride..(y + 1) * stride;
        rgb[line(100)].fill(255);
        rgb[line(450)].fill(255);
        let lifted = lift(rgb.clone(), SIZE, 300, 2.0 / 3.0);
        assert_eq!(lifted[..300 * stride], rgb[..300 * stride]);
        assert_eq!(lifted[449 * stride], 255, "one pixel up");
        assert!(lifted[450 * stride] < 200);
    }

    #[test]
    fn breathed_out_is_the_picture_itself() {
        assert_eq!(lift(ramp(), SIZE, 300, 0.0), ramp());
    }

    #[test]
    fn the_weights_keep_what_is_even_and_what_is_straight() {
        for t in [0.0, 0.25, 0.5, 0.75] {
            let weights = catmull_rom(t);
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            let line: f32 = weights.iter().zip([-1.0, 0.0, 1.0, 2.0]).map(|(w, x)| w * x).sum();
            assert!((line - t).abs() < 1e-6, "{t}: {line}");
        }
    }
}
