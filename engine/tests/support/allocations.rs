//! Counts the allocations of a thread. The module also installs the global allocator that does
//! this.

#![allow(unsafe_code)] // a global allocator needs unsafe code

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Number of allocations of this thread so far.
pub(crate) fn allocation_count() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Counts the allocations of each thread.
struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread's own
// cell, which never allocates.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
