//! The only place of this crate that starts a thread.

#![allow(clippy::disallowed_methods)] // allowed only here

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
#[cfg(target_os = "linux")]
use std::time::Duration;

use conversation::id::ConversationId;

/// Starts a thread with a name of at most 15 bytes (the limit of Linux).
///
/// # Errors
/// The system cannot start another thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    debug_assert!(name.len() <= 15, "Linux truncates the thread name {name}");
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Ahead of all threads with the default priority, and far below what the system reserves for
/// itself.
const MEDIA_THREAD_NICE: i32 = -10;

/// Time slice of a media thread: the minimum of Linux.
#[cfg(target_os = "linux")]
const MEDIA_THREAD_SLICE: Duration = Duration::from_micros(100);

/// Raises this thread's priority above the threads that share its processors. The system must allow
/// it (`CAP_SYS_NICE`, or a `nice` limit of -10). Returns whether it did. A model that answers 5 ms
/// late is not audible; audio that is 5 ms late is.
///
/// Also requests a short time slice, which needs no permission. Since Linux 6.12, a thread that
/// wakes up preempts one with a longer slice instead of waiting some milliseconds for its end. Older
/// systems ignore it.
pub fn raise_priority() -> bool {
    let raised = rustix::process::setpriority_process(None, MEDIA_THREAD_NICE).is_ok();
    #[cfg(target_os = "linux")]
    request_slice(MEDIA_THREAD_SLICE);
    raised
}

/// Requests a time slice for this thread, with its present priority.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no crate in use has a safe function for it")]
fn request_slice(slice: Duration) {
    /// `struct sched_attr` of the man page sched_setattr(2), in its first version.
    #[repr(C)]
    struct SchedulingAttributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        real_time_priority: u32,
        runtime_nanoseconds: u64,
        deadline: u64,
        period: u64,
    }
    let Ok(nice) = rustix::process::getpriority_process(None) else { return };
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        real_time_priority: 0,
        runtime_nanoseconds: slice.as_nanos() as u64,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the pointer is valid during the call, the structure has the size it says, and 0 is
    // the calling thread. After a failure the slice is the usual one.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Panics of the whole process since [`log_panics`].
static PANIC_COUNT: AtomicU64 = AtomicU64::new(0);

/// Logs and counts panics from now on, with thread and source location, instead of writing them to
/// standard error. Panic messages come from our code or a library; none contains what was said in a
/// call.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANIC_COUNT.fetch_add(1, Relaxed);
        let thread = std::thread::current();
        let text = panic.payload_as_str().unwrap_or("no text");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let conversation = current_call().map(|id| id.to_string());
        tracing::error!(thread = thread.name(), location = place, conversation, "panic: {text}");
    }));
}

/// Number of panics of the process so far.
#[must_use]
pub fn panic_count() -> u64 {
    PANIC_COUNT.load(Relaxed)
}

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(true) };
    static CURRENT_CALL: Cell<Option<ConversationId>> = const { Cell::new(None) };
}

/// Sets the call that this thread works for; `None` = no call. Log lines of any library can then
/// name the call. Unlogged work costs nothing, whereas entering a tracing span takes a lock.
pub(crate) fn set_current_call(call: Option<ConversationId>) {
    CURRENT_CALL.set(call);
}

/// The call that this thread works for.
#[must_use]
pub fn current_call() -> Option<ConversationId> {
    CURRENT_CALL.get()
}

/// Forbids this thread to block on a full channel, whatever its rule
/// ([`crate::channel::Overflow::Wait`]). A media thread that blocked on its own inbox would wait
/// for itself.
pub fn forbid_blocking() {
    MAY_BLOCK.set(false);
}

/// Whether this thread may block on a full channel.
#[must_use]
pub fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// Number of threads that the machine runs in parallel.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
