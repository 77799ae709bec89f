//! A counting allocator, for the `#[global_allocator]` of a test.
#![allow(unsafe_code)] // a global allocator requires it

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static THREAD_COUNTER: Cell<AllocationCount> =
        const { Cell::new(AllocationCount { calls: 0, bytes: 0 }) };
}

/// Allocations of a thread since its start.
#[derive(Clone, Copy, Debug)]
pub struct AllocationCount {
    /// Number of allocations.
    pub calls: u64,
    /// Bytes allocated and not freed.
    pub bytes: i64,
}

/// Allocations of this thread since its start.
#[must_use]
pub fn thread_allocations() -> AllocationCount {
    THREAD_COUNTER.get()
}

/// The system's allocator with counters per thread.
pub struct CountingAllocator;

fn record_allocation(calls: u64, bytes: i64) {
    let count = THREAD_COUNTER.get();
    THREAD_COUNTER.set(AllocationCount { calls: count.calls + calls, bytes: count.bytes + bytes });
}

// SAFETY: every call is passed to the system's allocator unchanged. Counting accesses a
// thread-local cell, which never allocates.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record_allocation(1, layout.size() as i64);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        record_allocation(0, -(layout.size() as i64));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
