//! The moments at which a crash or a panic would show whether anything is lost or doubled, told to whoever puts the server to that test.

/// Between two of these, but for the first, the data on disk, or what a receiver knows, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A fact that came from the engine is about to be taken in.
    BeforeFact,
    /// A transaction is about to be committed.
    BeforeWrite,
    /// A transaction was committed; nobody was told yet.
    AfterWrite,
    /// A webhook is about to be sent.
    BeforeSend,
    /// A webhook's receiver answered, or did not; what became of the try is not kept yet.
    AfterSend,
}

/// Who is told.
pub type Watch = fn(Moment);

impl Moment {
    /// Tells whoever watches that it has come.
    pub(crate) fn tell(self, watch: Option<Watch>) {
        if let Some(watch) = watch {
            watch(self);
        }
    }
}
