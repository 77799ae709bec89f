//! Seeds of the long tier.

use std::hash::{BuildHasher as _, Hasher as _};

/// The first seed of a long run: random, or the one in `VISAVIS_SEED`.
#[allow(clippy::print_stdout, reason = "who looks into a failure needs it")]
pub(crate) fn random_seed() -> u64 {
    let requested = std::env::var("VISAVIS_SEED")
        .ok()
        .map(|seed| seed.parse().expect("VISAVIS_SEED is a number"));
    // The standard library's hasher is seeded by the system. Half of its value leaves room to count
    // up without overflow.
    let seed =
        requested.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish() / 2);
    println!("VISAVIS_SEED={seed}");
    seed
}
