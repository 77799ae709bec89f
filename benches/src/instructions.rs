//! Counts the instructions of a bench that runs under Valgrind's Callgrind: they are the same however busy the machine is.
//! `scripts/budgets.py` starts it so, and reads what it writes: one file for each bench.
#![allow(unsafe_code)] // Valgrind is asked by instructions that do nothing elsewhere

use std::ffi::{CStr, CString};
#[cfg(target_arch = "x86_64")]
use std::ptr;
use std::time::Duration;

/// Requests by their numbers in `valgrind.h` and `callgrind.h`.
const RUNNING_ON_VALGRIND: usize = 0x1001;
const TOGGLE_COLLECT: usize = 0x4354_0002;
const DUMP_STATS_AT: usize = 0x4354_0003;
const START_INSTRUMENTATION: usize = 0x4354_0004;
const STOP_INSTRUMENTATION: usize = 0x4354_0005;

/// What Valgrind answers, 0 without it.
#[cfg(target_arch = "x86_64")]
fn ask(request: usize, text: Option<&CStr>) -> usize {
    let nothing = ptr::null();
    let text = text.map_or(nothing, CStr::as_ptr);
    let arguments = [ptr::without_provenance(request), text, nothing, nothing, nothing, nothing];
    let mut answer = 0;
    // SAFETY: `rdi` is turned by 128 bits in all and `rbx` swapped with itself, so nothing changes but the flags. Valgrind knows this sequence,
    // reads the six arguments and the text, which both live as long as this call, and sets `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") answer,
        );
    }
    answer
}

/// Other processors have another sequence.
#[cfg(not(target_arch = "x86_64"))]
fn ask(_: usize, _: Option<&CStr>) -> usize {
    0
}

/// Whether this program runs under Valgrind.
#[must_use]
pub fn counting() -> bool {
    ask(RUNNING_ON_VALGRIND, None) != 0
}

/// Begins to count what this thread does, or ends it.
pub(crate) fn toggle() {
    ask(TOGGLE_COLLECT, None);
}

/// Under Valgrind: counts what `work` measures in so many iterations, and says true. An iteration is done before, for what is made only once.
///
/// # Panics
/// The name holds a zero byte.
pub fn counted(name: &str, count: u64, work: &mut dyn FnMut(u64) -> Duration) -> bool {
    if !counting() {
        return false;
    }
    work(1);
    // Off for what is made around the benches, which is several times faster so.
    ask(START_INSTRUMENTATION, None);
    work(count);
    ask(STOP_INSTRUMENTATION, None);
    let text = CString::new(format!("{count} x {name}")).expect("a name without zero bytes");
    ask(DUMP_STATS_AT, Some(&text));
    true
}
