//! The operations that only the network of the person's mask needs.

use super::kernels::{PackedWeights, Size, multiply};

/// AVERAGE_POOL_2D over the whole tensor: the mean of each channel.
pub(super) fn mean(input: &[f32], channels: usize) -> Vec<f32> {
    let mut sums = vec![0.0; channels];
    for values in input.chunks_exact(channels) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    let count = (input.len() / channels) as f32;
    sums.iter_mut().for_each(|sum| *sum /= count);
    sums
}

/// MUL by one factor for each channel.
pub(super) fn scale(values: &mut [f32], factors: &[f32]) {
    for values in values.chunks_exact_mut(factors.len()) {
        values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
    }
}

/// HARD_SWISH.
pub(super) fn hard_swish(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v *= (*v + 3.0).clamp(0.0, 6.0) / 6.0);
}

/// LOGISTIC.
pub(super) fn logistic(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp()));
}

/// RESIZE_BILINEAR with half-pixel centres.
pub(super) fn resize(input: &[f32], from: Size, to: Size) -> Vec<f32> {
    // Both neighbours of each place, and the weight of the second one.
    let places = |from: usize, to: usize| -> Vec<(usize, usize, f32)> {
        let place = |i: usize| {
            let at = (i as f32 + 0.5) * from as f32 / to as f32 - 0.5;
            let at = at.clamp(0.0, (from - 1) as f32);
            (at as usize, (at as usize + 1).min(from - 1), at.fract())
        };
        (0..to).map(place).collect()
    };
    let channels = from.channels;
    let pixel = |y: usize, x: usize| &input[(y * from.width + x) * channels..][..channels];
    let columns = places(from.width, to.width);
    let mut output = Vec::with_capacity(to.count());
    for (top, bottom, down) in places(from.height, to.height) {
        for (left, right, across) in &columns {
            let corners = pixel(top, *left).iter().zip(pixel(top, *right));
            let corners = corners.zip(pixel(bottom, *left).iter().zip(pixel(bottom, *right)));
            output.extend(corners.map(|((a, b), (c, d))| {
                let (upper, lower) = (a + (b - a) * across, c + (d - c) * across);
                upper + (lower - upper) * down
            }));
        }
    }
    output
}

/// A transposed convolution with a window and a stride of 2 × 2. The outputs of `weights` are
/// channels × rows × columns of the window.
pub(super) fn upsample(input: &[f32], from: Size, to: Size, weights: &PackedWeights) -> Vec<f32> {
    let channels = to.channels;
    let mut products = vec![0.0; from.height * from.width * channels * 4];
    multiply(input, weights, &mut products);
    let mut output = vec![0.0; to.count()];
    for (pixel, products) in products.chunks_exact(channels * 4).enumerate() {
        let (y, x) = (pixel / from.width * 2, pixel % from.width * 2);
        for (i, product) in products.iter().enumerate() {
            let (channel, row, column) = (i / 4, i / 2 % 2, i % 2);
            output[((y + row) * to.width + x + column) * channels + channel] = *product;
        }
    }
    output
}
