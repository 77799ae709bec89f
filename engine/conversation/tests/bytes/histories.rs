//! Bytes as the choices of a random call.

use crate::harness::Random;
use crate::laws::{first_broken_law, run_random_call};

/// The call that these bytes choose satisfies the laws.
///
/// # Panics
/// A law is broken.
pub(crate) fn keeps_the_laws(bytes: &[u8]) {
    if bytes.len() > 1 << 13 {
        return;
    }
    if let Some(why) = first_broken_law(&run_random_call(&Random::from_bytes(bytes))) {
        panic!("{why}");
    }
}
