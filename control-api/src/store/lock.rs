//! The locks of write transactions in PostgreSQL. Each one is as narrow as what it protects, so
//! that a transaction that does not end delays only those that need the same values. SQLite has one
//! writer at a time.
//!
//! Order within a transaction: the lock named at its start, then the rows of conversations
//! (`conversation::lock`), then all others.

use sha2::{Digest as _, Sha256};

/// What a write transaction protects from other writers from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock<'a> {
    /// Nothing but the rows that its statements change. Each statement is right by itself, or the
    /// transaction locks the rows that it reads.
    Rows,
    /// The records of a workspace, and the counts behind its limits.
    Workspace(&'a str),
    /// The order of background jobs of a kind.
    Jobs(&'a str),
    /// The names of workspaces.
    Workspaces,
}

impl Lock<'_> {
    /// Key of the advisory lock, if there is one.
    fn key(self) -> Option<i64> {
        let name = match self {
            Self::Rows => return None,
            Self::Workspace(id) => format!("visavis workspace {id}"),
            Self::Jobs(kind) => format!("visavis jobs {kind}"),
            Self::Workspaces => "visavis workspaces".to_owned(),
        };
        Some(lock_key(&name))
    }

    /// The statements that start a transaction with this lock, in one round trip.
    pub(super) fn begin(self) -> String {
        match self.key() {
            Some(key) => format!("{BEGIN}; SELECT pg_advisory_xact_lock({key})"),
            None => BEGIN.to_owned(),
        }
    }
}

/// Key of the advisory lock with this name: the first bytes of a hash, which is the same in each
/// release.
pub(crate) fn lock_key(name: &str) -> i64 {
    Sha256::digest(name)[..8].iter().fold(0, |key, byte| (key << 8) | i64::from(*byte))
}

/// Starts a transaction, with limits for the wait for a lock, for a statement, and for a client
/// that no longer responds: a frozen process holds its locks for at most 5 s. They apply to the
/// transaction only, because a pooler may share the connection.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '1500ms'; \
    SET LOCAL statement_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// Whether a statement failed because another transaction held a lock for too long
/// (`lock_not_available`), or because both waited for each other (`deadlock_detected`).
pub(super) fn is_contention(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| code == "55P03" || code == "40P01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_has_its_own_key_which_never_changes() {
        let all = [
            Lock::Workspace("a"),
            Lock::Workspace("b"),
            Lock::Jobs("a"),
            Lock::Jobs("avatar"),
            Lock::Workspaces,
        ];
        let keys: std::collections::HashSet<_> = all.iter().map(|lock| lock.key()).collect();
        assert_eq!((keys.len(), keys.contains(&None)), (all.len(), false));
        assert_eq!(Lock::Rows.key(), None);
        // Servers of two releases on one database exclude each other.
        assert_eq!(Lock::Workspaces.key(), Some(3_534_702_812_501_660_275));
    }
}
