//! Search in the knowledge of an agent.

use conversation::event::Snippet;

use crate::BoxFuture;

/// The knowledge of an agent. Implemented by the control plane, which holds the index.
pub trait Knowledge: Send + Sync + 'static {
    /// The best `limit` snippets for `query`, best first; empty if nothing matches. Computes for at
    /// most a few milliseconds. May wait up to 250 ms for the embedding of the query.
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>>;

    /// All passages in the order of the documents if there are at most `limit`, else the best
    /// `limit` for `query`. By default, the best ones.
    fn passages<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>> {
        self.search(query, limit)
    }
}
