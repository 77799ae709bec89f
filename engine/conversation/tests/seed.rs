//! Seeds of long runs.

use std::hash::{BuildHasher as _, Hasher as _};

/// The first seed of a long run: drawn, or the one that `VISAVIS_SEED` names.
#[allow(clippy::print_stdout, reason = "who looks into a failure needs it")]
pub(crate) fn random_seed() -> u64 {
    let requested =
        std::env::var("VISAVIS_SEED").ok().map(|seed| seed.parse().expect("VISAVIS_SEED is a number"));
    // The standard library's hasher is seeded by the system. Halved, so that counting on from it does not overflow.
    let seed = requested.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish() / 2);
    println!("VISAVIS_SEED={seed}");
    seed
}
