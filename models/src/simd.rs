//! Detects the vector instructions of the machine, and compiles kernels for them.
//!
//! This is the crate's only `unsafe` code outside the modules that call C: a function compiled for
//! an instruction set may be called only on a machine that has it.
#![allow(unsafe_code)]

/// A computation that is compiled once for each instruction set.
pub(crate) trait Kernel {
    type Output;

    /// Computes with vectors of `L` floats. `FMA`: the target has fused multiply-add. The method
    /// and all functions that it calls are `inline(always)`, so that they are compiled with the
    /// target features of their caller. Closures are compiled without them.
    fn run<const L: usize, const FMA: bool>(self) -> Self::Output;
}

/// Instruction set of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Available on every machine of the target.
    Portable,
    /// Eight lanes with fused multiply-add.
    Avx2,
    /// Sixteen lanes.
    Avx512,
}

impl Isa {
    /// All instruction sets of this machine, the best one last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Avx512]
            .into_iter()
            .filter(|isa| isa.is_available())
            .collect()
    }

    /// The best instruction set of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Portable)
    }

    fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            match self {
                Self::Portable => true,
                Self::Avx2 => avx2,
                Self::Avx512 => avx2 && is_x86_feature_detected!("avx512f"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }

    /// Number of outputs that are computed together: two vectors.
    pub(crate) fn output_block(self) -> usize {
        if self == Self::Avx512 { 32 } else { 16 }
    }
}

/// An instruction set that was detected on this machine.
#[derive(Clone, Copy)]
pub(crate) struct DetectedIsa(Isa);

impl DetectedIsa {
    /// `isa`, or the portable one if the machine lacks it.
    pub(crate) fn new(isa: Isa) -> Self {
        Self(if isa.is_available() { isa } else { Isa::Portable })
    }

    pub(crate) fn isa(self) -> Isa {
        self.0
    }

    /// Runs `kernel`, compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` detected avx512f, avx2 and fma on this machine.
            Isa::Avx512 => unsafe { avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` detected avx2 and fma on this machine.
            Isa::Avx2 => unsafe { avx2(kernel) },
            // Every aarch64 has fused multiply-add.
            _ => kernel.run::<8, { cfg!(target_arch = "aarch64") }>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<16, true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<8, true>()
}
