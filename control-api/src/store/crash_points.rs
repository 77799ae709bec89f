//! Points in the program where a test stops it or makes it panic, to check that nothing is lost or
//! duplicated.

/// Between two of these points, except [`BeforeEvent`](Self::BeforeEvent), the data on disk or the
/// data at a receiver changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// An event from the engine is about to be processed.
    BeforeEvent,
    /// A transaction is about to be committed.
    BeforeCommit,
    /// A transaction was committed; readers are not notified yet.
    AfterCommit,
    /// A webhook is about to be sent.
    BeforeSend,
    /// The receiver of a webhook responded, or the attempt failed; the result is not stored yet.
    AfterSend,
}

/// Called at each crash point.
pub type CrashHook = fn(CrashPoint);

impl CrashPoint {
    /// Calls the hook, if there is one.
    pub(crate) fn notify(self, watch: Option<CrashHook>) {
        if let Some(watch) = watch {
            watch(self);
        }
    }
}
