//! The outline of a person in a photo: refines the coarse mask of the segmentation network.

use landmarks::Picture;

/// Radius of the windows in which the mask follows the brightness, relative to the longer side: one
/// place of the network's mask.
const RADIUS: f32 = 1.0 / 128.0;
/// Variance of the brightness below which an area is plain, so that the mask only gets smooth there.
/// Brightness is 0 … 1.
const PLAIN: f32 = 4e-4;
/// Shares below the first are background and above the second the person: the network hesitates on
/// both sides.
const CERTAIN: (f32, f32) = (0.15, 0.90);

/// The share of the person in each pixel, 0 … 1, from a rough mask of the same size: a guided filter
/// (He, Sun & Tang 2010), which lets the mask follow the edges of the photo.
pub(super) fn refine(rough: &Picture, photo: &Picture) -> Vec<f32> {
    let size = (photo.width(), photo.height());
    let mask: Vec<f32> = rough.rgb().chunks_exact(3).map(|p| f32::from(p[0]) / 255.0).collect();
    let light: Vec<f32> = photo.rgb().chunks_exact(3).map(luma).collect();
    let radius = ((size.0.max(size.1) as f32 * RADIUS) as usize).max(1);
    let mean = |values: Vec<f32>| box_mean(&values, size, radius);
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).collect();
    let (mean_light, mean_mask) = (mean(light.clone()), mean(mask.clone()));
    let (mean_square, mean_both) = (mean(product(&light, &light)), mean(product(&light, &mask)));
    // In each window, the mask is `slope` × brightness + `offset`.
    let slope: Vec<f32> = (0..mask.len())
        .map(|i| {
            let variance = mean_square[i] - mean_light[i] * mean_light[i];
            (mean_both[i] - mean_light[i] * mean_mask[i]) / (variance.max(0.0) + PLAIN)
        })
        .collect();
    let offset: Vec<f32> =
        (0..mask.len()).map(|i| mean_mask[i] - slope[i] * mean_light[i]).collect();
    let (slope, offset) = (mean(slope), mean(offset));
    (0..mask.len())
        .map(|i| {
            let share = slope[i] * light[i] + offset[i];
            smoothstep(CERTAIN.0, CERTAIN.1, share)
        })
        .collect()
}

/// Luma of an sRGB pixel, 0 … 1 (ITU-R BT.601).
fn luma(pixel: &[u8]) -> f32 {
    (0.299 * f32::from(pixel[0]) + 0.587 * f32::from(pixel[1]) + 0.114 * f32::from(pixel[2]))
        / 255.0
}

/// 0 below `low`, 1 above `high`, smooth between.
pub(super) fn smoothstep(low: f32, high: f32, value: f32) -> f32 {
    let t = ((value - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// The mean of the values within `radius` of each place, rows and columns. Windows end at the edge.
pub(super) fn box_mean(values: &[f32], (width, height): (usize, usize), radius: usize) -> Vec<f32> {
    let mut rows = vec![0.0; values.len()];
    for (from, to) in values.chunks_exact(width).zip(rows.chunks_exact_mut(width)) {
        running_mean(radius, width, |x| from[x], |x, mean| to[x] = mean);
    }
    let mut out = vec![0.0; values.len()];
    for x in 0..width {
        let to = |y: usize, mean| out[y * width + x] = mean;
        running_mean(radius, height, |y| rows[y * width + x], to);
    }
    out
}

fn running_mean(
    radius: usize,
    length: usize,
    at: impl Fn(usize) -> f32,
    mut put: impl FnMut(usize, f32),
) {
    // In 64 bits, so that what enters the window and leaves it cancels out.
    let mut sum: f64 = (0..radius.min(length)).map(|i| f64::from(at(i))).sum();
    for i in 0..length {
        if i + radius < length {
            sum += f64::from(at(i + radius));
        }
        if i > radius {
            sum -= f64::from(at(i - radius - 1));
        }
        let count = (i + radius + 1).min(length) - i.saturating_sub(radius);
        put(i, (sum / count as f64) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_that_of_the_window_inside_the_picture() {
        let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let means = box_mean(&values, (4, 3), 1);
        assert_eq!(means[0], (0.0 + 1.0 + 4.0 + 5.0) / 4.0);
        assert_eq!(means[5], (0..3).map(|y| (y * 12 + 3) as f32).sum::<f32>() / 9.0);
        let all = box_mean(&values, (4, 3), 50);
        assert!(all.iter().all(|mean| *mean == 5.5), "{all:?}");
    }

    #[test]
    fn a_rough_mask_follows_the_edge_of_the_photo() {
        let side = 128;
        let grey = |f: &dyn Fn(usize) -> u8| {
            let rgb = (0..side * side).flat_map(|i| [f(i % side); 3]).collect();
            Picture::new(side, side, rgb).unwrap()
        };
        // The edge is between columns 63 and 64; the mask passes from 0 to 1 over 16 columns.
        let photo = grey(&|x| if x < 64 { 40 } else { 200 });
        let rough = grey(&|x| (x.saturating_sub(57).min(16) * 255 / 16) as u8);
        let refined = refine(&rough, &photo);
        let row = &refined[64 * side..65 * side];
        let step = row[64] - row[63];
        let before = rough.rgb()[64 * 3..][0].abs_diff(rough.rgb()[63 * 3..][0]);
        assert!(step > 3.0 * f32::from(before) / 255.0, "{step}");
        assert!(row[40] < 0.01 && row[90] > 0.99, "{row:?}");
    }
}
