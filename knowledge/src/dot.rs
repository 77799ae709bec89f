//! The dot product of two byte vectors, compiled for the vector instructions of the machine.
//!
//! This module has the only `unsafe` of the crate: a function compiled for an instruction set may
//! be called only where that set exists.
#![allow(unsafe_code)]

/// The sum of the products. It does not overflow for up to 2¹⁶ components of at most ±127, which is
/// more than any model has.
pub(crate) fn dot(a: &[i8], b: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: avx2 was seen on this machine.
        return unsafe { avx2(a, b) };
    }
    portable(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(a: &[i8], b: &[i8]) -> i32 {
    portable(a, b)
}

#[inline(always)]
fn portable(a: &[i8], b: &[i8]) -> i32 {
    // Products of 16 bits that are added in pairs: one instruction on every x86.
    a.iter().zip(b).map(|(a, b)| i32::from(i16::from(*a)) * i32::from(i16::from(*b))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_same_dot_product() {
        for length in [0, 1, 15, 16, 31, 33, 384, 1536] {
            let a: Vec<i8> = (0..length).map(|i| (i * 37 % 255 - 127) as i8).collect();
            let b: Vec<i8> = (0..length).map(|i| (i * 91 % 255 - 127) as i8).collect();
            let wanted: i64 = a.iter().zip(&b).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum();
            assert_eq!(i64::from(dot(&a, &b)), wanted);
            assert_eq!(i64::from(portable(&a, &b)), wanted);
        }
        assert_eq!(dot(&[-127; 65_536], &[127; 65_536]), -127 * 127 * 65_536);
    }
}
