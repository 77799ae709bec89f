//! Quotas of a workspace: `limits.workspace_*`, each off if 0. Agents, conversations and bytes are
//! checked in the transaction that adds to them, so they are never exceeded. Calls are reserved in
//! memory, and each server counts its own.

use std::collections::HashSet;
use std::time::Instant;

use crate::clock;
use crate::error::ApiError;
use crate::state::AppState;
use crate::store::conversation::{Row, STARTED};
use crate::store::quota::{self as table, day_number, day_start};
use crate::store::{Transaction, json_record};

/// 429 if the workspace has the maximum number of agents.
pub(crate) async fn check_agents(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
) -> Result<(), ApiError> {
    let max = state.config.limits.workspace_agents;
    if max == 0 || table::count_agents(tx, workspace).await? < i64::from(max) {
        return Ok(());
    }
    Err(ApiError::WorkspaceLimit {
        field: "workspace_agents",
        reason: format!("a workspace may have {max} agents"),
        retry_after: None,
    })
}

/// 429 if the workspace has created the maximum number of conversations today (UTC).
pub(crate) async fn check_conversations(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
) -> Result<(), ApiError> {
    let max = state.config.limits.workspace_conversations;
    let now = clock::now();
    if max == 0
        || table::count_conversations(tx, workspace, day_number(now)).await? < i64::from(max)
    {
        return Ok(());
    }
    let wait = (day_start(day_number(now) + 1) - now).max(0) as u64;
    Err(ApiError::WorkspaceLimit {
        field: "workspace_conversations",
        reason: format!("a workspace may create {max} conversations per day"),
        retry_after: Some(wait.div_ceil(1_000_000).max(1)),
    })
}

/// 429 if the workspace may not store `additional` more bytes.
pub(crate) async fn check_bytes(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    additional: usize,
) -> Result<(), ApiError> {
    let max = state.config.limits.workspace_bytes;
    if max == 0 {
        return Ok(());
    }
    let stored = u64::try_from(table::stored_bytes(tx, workspace).await?).unwrap_or(0);
    if stored.saturating_add(additional as u64) <= max {
        return Ok(());
    }
    Err(ApiError::WorkspaceLimit {
        field: "workspace_bytes",
        reason: format!("a workspace may store {max} bytes, and stores {stored}"),
        retry_after: None,
    })
}

/// 429 if the new version of a stored document is larger, and the workspace may not store the
/// additional bytes. A version that is not larger is always accepted.
pub(crate) async fn check_growth(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    old: &json_record::Row,
    new: usize,
) -> Result<(), ApiError> {
    let additional = new.saturating_sub(old.document.len() + old.secrets.len());
    if additional == 0 { Ok(()) } else { check_bytes(state, tx, workspace, additional).await }
}

/// 503 if the workspace has the maximum number of calls. True if a reservation was made, which must
/// be released if the engine rejects the call.
///
/// A call counts from its offer on; otherwise many simultaneous offers would pass. With several
/// servers on one database, running calls count on all of them. Offers that have not connected yet
/// count on this server only.
pub(crate) async fn reserve_call(state: &AppState, row: &Row) -> Result<bool, ApiError> {
    let max = state.config.limits.workspace_calls as usize;
    if max == 0 || row.status != STARTED {
        return Ok(false);
    }
    let connecting = state.connecting_calls.in_workspace(&row.workspace);
    // A call that starts between the two queries is in the second result.
    let mut held = HashSet::new();
    for id in &connecting {
        if state.store.is_started(id).await? {
            held.insert(id.clone());
        }
    }
    held.extend(state.store.running_conversations_of(&row.workspace).await?);
    let until = Instant::now() + state.config.timeouts.offer;
    state.connecting_calls.reserve(row, until, max, &connecting, &held).ok_or_else(|| {
        ApiError::NoCapacity("the workspace is full: its call limit is reached".into())
    })
}

/// Refuses an agent for a meeting in which its call could not start. Agents that are on their way
/// to a meeting count, too.
pub(crate) async fn ensure_room_for_meeting(
    state: &AppState,
    workspace: &str,
) -> Result<(), ApiError> {
    let max = state.config.limits.workspace_calls as usize;
    if max == 0 {
        return Ok(());
    }
    let running = state.store.running_conversations_of(workspace).await?.len();
    if running + state.store.meetings_to_join(workspace).await? >= max {
        return Err(ApiError::NoCapacity(
            "the workspace is full: its call limit is reached".into(),
        ));
    }
    Ok(())
}
