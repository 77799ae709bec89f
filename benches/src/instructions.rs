//! Counts the instructions of a bench under Valgrind's Callgrind: the count does not depend on the
//! load of the machine. `scripts/budgets.py` runs the benches this way, and reads the output: one
//! file per bench.
#![allow(unsafe_code)] // requests to Valgrind are instructions without effect elsewhere

use std::ffi::{CStr, CString};
#[cfg(target_arch = "x86_64")]
use std::ptr;
use std::time::Duration;

/// Numbers of the requests in `valgrind.h` and `callgrind.h`.
const RUNNING_ON_VALGRIND: usize = 0x1001;
const TOGGLE_COLLECT: usize = 0x4354_0002;
const DUMP_STATS_AT: usize = 0x4354_0003;
const START_INSTRUMENTATION: usize = 0x4354_0004;
const STOP_INSTRUMENTATION: usize = 0x4354_0005;

/// Sends a request to Valgrind and returns its result; 0 without Valgrind.
#[cfg(target_arch = "x86_64")]
fn valgrind_request(request: usize, text: Option<&CStr>) -> usize {
    let nothing = ptr::null();
    let text = text.map_or(nothing, CStr::as_ptr);
    let arguments = [ptr::without_provenance(request), text, nothing, nothing, nothing, nothing];
    let mut answer = 0;
    // SAFETY: `rdi` is rotated by 128 bits in total and `rbx` is exchanged with itself, so only the
    // flags change. Valgrind recognizes this sequence, reads the six arguments and the text, which
    // both live as long as this call, and sets `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") answer,
        );
    }
    answer
}

/// Other architectures have a different sequence.
#[cfg(not(target_arch = "x86_64"))]
fn valgrind_request(_: usize, _: Option<&CStr>) -> usize {
    0
}

/// Whether this program runs under Valgrind.
#[must_use]
pub fn under_valgrind() -> bool {
    valgrind_request(RUNNING_ON_VALGRIND, None) != 0
}

/// Starts or stops counting the instructions of this thread.
pub(crate) fn toggle_collection() {
    valgrind_request(TOGGLE_COLLECT, None);
}

/// Under Valgrind: counts the instructions that `work` measures in `count` iterations, and returns
/// true. One iteration runs before, for one-time initialization.
///
/// # Panics
/// The name contains a zero byte.
pub fn count_instructions(name: &str, count: u64, work: &mut dyn FnMut(u64) -> Duration) -> bool {
    if !under_valgrind() {
        return false;
    }
    work(1);
    // Disabled outside the benches, where the code is then several times faster.
    valgrind_request(START_INSTRUMENTATION, None);
    work(count);
    valgrind_request(STOP_INSTRUMENTATION, None);
    let text = CString::new(format!("{count} x {name}")).expect("a name without zero bytes");
    valgrind_request(DUMP_STATS_AT, Some(&text));
    true
}
