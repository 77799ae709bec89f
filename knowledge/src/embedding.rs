//! Embeddings of texts.

use crate::dot::dot;

/// The embedding of a text, one byte per component. This takes a quarter of the memory, and cosines
/// are within a hundredth of the exact ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    bytes: Box<[i8]>,
    /// Euclidean length of `bytes`.
    norm: f32,
}

impl Embedding {
    /// Quantizes `vector`; `None` if it is zero or its largest component is not finite.
    #[must_use]
    pub fn from_vector(vector: &[f32]) -> Option<Self> {
        let largest = vector.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if !(largest > 0.0 && largest.is_finite()) {
            return None;
        }
        let byte = |x: &f32| (x / largest * 127.0).round() as i8;
        Self::from_bytes(vector.iter().map(byte).collect())
    }

    /// Restores an embedding that was stored as its [`Embedding::bytes`]; `None` if all are zero.
    #[must_use]
    pub fn from_bytes(bytes: Box<[i8]>) -> Option<Self> {
        let norm = (dot(&bytes, &bytes) as f32).sqrt();
        (norm > 0.0).then_some(Self { bytes, norm })
    }

    /// The components, the largest of which is ±127.
    #[must_use]
    pub fn bytes(&self) -> &[i8] {
        &self.bytes
    }

    /// Cosine similarity; `None` if the dimensions differ.
    pub(crate) fn cosine(&self, other: &Self) -> Option<f32> {
        let same = self.bytes.len() == other.bytes.len();
        same.then(|| dot(&self.bytes, &other.bytes) as f32 / (self.norm * other.norm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedding(vector: &[f32]) -> Option<Embedding> {
        Embedding::from_vector(vector)
    }

    /// Pseudo-random numbers from -1 to 1 (Numerical Recipes' linear congruential generator).
    fn noise(seed: &mut u32) -> f32 {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    #[test]
    fn cosines_of_bytes_are_nearly_those_of_the_numbers() {
        let seed = &mut 1;
        for _ in 0..100 {
            let a: Vec<f32> = (0..384).map(|_| noise(seed)).collect();
            let b: Vec<f32> = a.iter().map(|x| x + noise(seed)).collect();
            let exact = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let wanted = exact(&a, &b) / (exact(&a, &a) * exact(&b, &b)).sqrt();
            let got = embedding(&a).unwrap().cosine(&embedding(&b).unwrap()).unwrap();
            assert!((got - wanted).abs() < 0.01, "{got} {wanted}");
        }
        assert_eq!(embedding(&[0.0, 0.0]), None);
        assert_eq!(embedding(&[f32::NAN, f32::INFINITY]), None);
    }
}
