//! Points in the program where a test stops it or makes it panic, to check that nothing is lost or
//! duplicated.

/// Between two of these points, except [`BeforeEvent`](Self::BeforeEvent), the data on disk or the
/// data at a receiver changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An event from the engine is about to be processed.
    BeforeFact,
    /// A transaction is about to be committed.
    BeforeWrite,
    /// A transaction was committed; readers are not notified yet.
    AfterWrite,
    /// A webhook is about to be sent.
    BeforeSend,
    /// The receiver of a webhook responded, or the attempt failed; the result is not stored yet.
    AfterSend,
}

/// Called at each crash point.
pub type Watch = fn(Moment);

impl Moment {
    /// Calls the hook, if there is one.
    pub(crate) fn tell(self, watch: Option<Watch>) {
        if let Some(watch) = watch {
            watch(self);
        }
    }
}
