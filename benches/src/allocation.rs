//! An allocator that counts, for `#[global_allocator]` of a test.
#![allow(unsafe_code)] // a global allocator cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

/// What a thread has allocated so far.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// How often it asked for memory.
    pub calls: u64,
    /// Bytes that it asked for and did not give back.
    pub bytes: i64,
}

/// What this thread has allocated so far.
#[must_use]
pub fn count() -> Count {
    COUNT.get()
}

/// The system's allocator, counting by thread.
pub struct Counting;

fn add(calls: u64, bytes: i64) {
    let count = COUNT.get();
    COUNT.set(Count { calls: count.calls + calls, bytes: count.bytes + bytes });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread's own cell, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(1, layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(0, -(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
