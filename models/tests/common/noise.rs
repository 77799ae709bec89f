//! The noise of Flite's voices. Also used by `engine/tests/lips.rs`.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Flite draws the noise of its voices from the C library's generator, which all threads of the
/// process share. While the guard is held, synthesised speech is the same in every run.
#[allow(unsafe_code, reason = "the generator is the C library's")]
pub(crate) fn seed_voice_noise() -> MutexGuard<'static, ()> {
    static NOISE_LOCK: Mutex<()> = Mutex::new(());
    let guard = NOISE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: `srand` has no precondition.
    unsafe { libc::srand(1) };
    guard
}
