//! Bytes as the choices of a random world.

use crate::laws::{broken, live};
use crate::world::Random;

/// The history that these bytes choose keeps the laws.
///
/// # Panics
/// Where it does not.
pub(crate) fn history(bytes: &[u8]) {
    if bytes.len() > 1 << 13 {
        return;
    }
    if let Some(why) = broken(&live(&Random::of_bytes(bytes))) {
        panic!("{why}");
    }
}
