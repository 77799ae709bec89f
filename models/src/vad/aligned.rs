//! Floats aligned to a cache line.

/// A fixed number of floats that starts at a 64-byte boundary. An unaligned vector of 16 crosses a
/// cache line at every load. Not `Clone`: a copy would have another alignment.
pub(super) struct AlignedFloats {
    floats: Vec<f32>,
    start: usize,
    len: usize,
}

impl AlignedFloats {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        let floats = vec![0.0; len + 16];
        let start = floats.as_ptr().align_offset(64);
        Self { floats, start, len }
    }

    /// `len` values; element `i` is `value(i)`.
    pub(super) fn from_fn(len: usize, value: impl Fn(usize) -> f32) -> Self {
        let mut all = Self::zeros(len);
        for (i, x) in all.as_mut_slice().iter_mut().enumerate() {
            *x = value(i);
        }
        all
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[f32] {
        &self.floats[self.start..self.start + self.len]
    }

    #[inline(always)]
    pub(super) fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.floats[self.start..self.start + self.len]
    }

    /// The values as vectors of `L` floats; a remainder shorter than a vector is omitted.
    #[inline(always)]
    pub(super) fn vectors<const L: usize>(&self) -> &[[f32; L]] {
        self.as_slice().as_chunks().0
    }
}
