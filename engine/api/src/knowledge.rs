//! Search in the knowledge of an agent.

use conversation::event::Snippet;

use crate::BoxFuture;

/// The knowledge of an agent. Implemented by the control plane, which holds the index.
pub trait Knowledge: Send + Sync + 'static {
    /// The best `limit` snippets for `query`, best first; empty if nothing matches. Computes for at
    /// most a few milliseconds. May wait up to 250 ms for the embedding of the query.
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>>;
}
