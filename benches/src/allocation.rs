//! A counting allocator, for the `#[global_allocator]` of a test.
#![allow(unsafe_code)] // a global allocator requires it

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

/// Allocations of a thread since its start.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Number of allocations.
    pub calls: u64,
    /// Bytes allocated and not freed.
    pub bytes: i64,
}

/// Allocations of this thread since its start.
#[must_use]
pub fn count() -> Count {
    COUNT.get()
}

/// The system's allocator with counters per thread.
pub struct Counting;

fn add(calls: u64, bytes: i64) {
    let count = COUNT.get();
    COUNT.set(Count { calls: count.calls + calls, bytes: count.bytes + bytes });
}

// SAFETY: every call is passed to the system's allocator unchanged. Counting accesses a
// thread-local cell, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(1, layout.size() as i64);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(0, -(layout.size() as i64));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
