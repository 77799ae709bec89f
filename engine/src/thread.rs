//! The only place that starts a thread.

#![allow(clippy::disallowed_methods)] // here they are allowed

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

use conversation::call_config::ConversationId;

/// Starts a thread under a name of at most 15 bytes (what Linux shows of it).
///
/// # Errors
/// The system has no thread left.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    debug_assert!(name.len() <= 15, "Linux cuts {name}");
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Nearer to the front than anything that keeps the usual priority, and far from what the system keeps for itself.
const MEDIA_THREAD_NICE: i32 = -10;

/// This thread goes before those that share its processors, where the system allows it (`CAP_SYS_NICE`, or a limit `nice` of -10): a
/// model that comes 5 ms later is not heard, sound that does is. Whether it is allowed.
pub fn raise_priority() -> bool {
    rustix::process::setpriority_process(None, MEDIA_THREAD_NICE).is_ok()
}

/// Panics of the whole process since [`log_panics`].
static PANIC_COUNT: AtomicU64 = AtomicU64::new(0);

/// From now on panics are logged with thread and place, and counted, instead of being written to standard error. Their texts are ours or a
/// library's; a call's words are in none.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANIC_COUNT.fetch_add(1, Relaxed);
        let thread = std::thread::current();
        let text = panic.payload_as_str().unwrap_or("no text");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let conversation = current_call().map(|id| id.to_string());
        tracing::error!(thread = thread.name(), place, conversation, "panic: {text}");
    }));
}

/// Panics of the process so far.
#[must_use]
pub fn panic_count() -> u64 {
    PANIC_COUNT.load(Relaxed)
}

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(true) };
    static CURRENT_CALL: Cell<Option<ConversationId>> = const { Cell::new(None) };
}

/// What this thread does from now on, it does for this call; `None`: for none. So a line that is logged meanwhile, by whatever library, can
/// name its call, and what is not logged costs nothing: a span is entered behind a lock.
pub(crate) fn set_current_call(call: Option<ConversationId>) {
    CURRENT_CALL.set(call);
}

/// The call that this thread works for.
#[must_use]
pub fn current_call() -> Option<ConversationId> {
    CURRENT_CALL.get()
}

/// From now on this thread waits for no edge, whatever the edge says ([`crate::channel::Overflow::Wait`]): a media thread that waited for room in
/// its own inbox would wait for itself.
pub fn forbid_blocking() {
    MAY_BLOCK.set(false);
}

/// Whether this thread may wait for room in an edge.
#[must_use]
pub fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// How many threads the machine runs at once.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
