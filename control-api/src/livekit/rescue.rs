//! Rooms that LiveKit has left without an agent: its dispatch loses a job without a word if no worker
//! is there, if all are full or late, or if one dies. Such a room gets an agent directly, without a
//! job.
//!
//! A room of ours has a name or a dispatch of ours. Rooms of other applications are never joined.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use conversation::event::EndReason;
use futures_util::{StreamExt as _, stream};
use livekit_protocol as proto;
use proto::participant_info::{Kind, State};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::job::{self, RoomJob};
use super::worker;
use crate::cluster::singleton::Singleton;
use crate::events::record;
use crate::state::AppState;
use crate::state::livekit::rooms::{self, JobStep, LostCause, RoomGuard};
use crate::state::livekit::server_api::ApiFailure;
use crate::state::livekit::{LiveKit, ReportedRoom};
use crate::store;
use crate::store::conversation::{ENDED, Row, STARTED};

/// How often all rooms are looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a caller may be without an agent before the room gets one: if a webhook reported the
/// caller, and if only the poll did. The poll may see the caller one interval late, and the room is
/// due at its third look.
const REPORTED_WAIT: Duration = Duration::from_secs(1);
const UNREPORTED_WAIT: Duration = Duration::from_millis(1_500);
/// Number of rooms that are looked at at the same time.
const CONCURRENT_LOOKS: usize = 16;
/// How long a room that could not be served is left alone.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long a room is left alone whose job or call has failed here: the cause may not be gone.
const FAILED_PAUSE: Duration = Duration::from_secs(30);
/// `end_reason` of calls whose server has failed.
const ERROR_REASON: &str = record::end_reason_name(EndReason::Error);
/// How long it is believed that a room has no dispatch of ours. One can be added at any time.
const FOREIGN_TIME: Duration = Duration::from_secs(10);

/// A room that this server does not serve, between two looks at it.
struct UnservedRoom {
    /// Its job, if it is one of ours.
    job: Option<OwnJob>,
    looked_at: Instant,
    /// Since when it has callers and no agent.
    lonely_since: Option<Instant>,
}

/// Looks at rooms again and again, until the future is dropped.
pub(crate) async fn run(state: Arc<AppState>, livekit: Arc<LiveKit>) {
    tokio::join!(
        poll_rooms(Arc::clone(&state), Arc::clone(&livekit)),
        watch_reports(state, livekit),
    );
}

/// Looks at all rooms again and again.
async fn poll_rooms(state: Arc<AppState>, livekit: Arc<LiveKit>) {
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut singleton = Singleton::new(state.config.database_url.clone(), "livekit rooms");
    let mut unserved = HashMap::new();
    let mut has_failed = false;
    loop {
        polls.tick().await;
        // A server that takes no call leaves the rooms to one that does.
        if singleton.is_shared() && worker::refusal(&state).is_some() {
            singleton.release();
            unserved.clear();
            continue;
        }
        if !singleton.is_holder(POLL_INTERVAL).await {
            unserved.clear();
            continue;
        }
        match poll(&state, &livekit, &mut unserved).await {
            Ok(()) => has_failed = false,
            Err(error) => {
                // Once per outage.
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!(%error, "cannot look for LiveKit rooms without an agent");
                }
            }
        }
    }
}

/// One look at all rooms. The number of participants in the list is seconds old, so each room of ours
/// is asked for them.
async fn poll(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    unserved: &mut HashMap<String, UnservedRoom>,
) -> Result<(), ApiFailure> {
    let rooms = livekit.api.rooms().await?;
    // Without the store, no room can be served.
    let Ok(with_agents) = state.store.rooms_with_agents().await else { return Ok(()) };
    let names: HashSet<&str> = rooms.iter().map(|room| &*room.name).collect();
    unserved.retain(|name, _| names.contains(&**name));
    let mut due = Vec::new();
    for proto::Room { name, sid, .. } in rooms {
        let known = unserved.remove(&name);
        if !livekit.rooms.is_served(&name) && !with_agents.contains(&sid) {
            due.push((name, sid, known));
        }
    }
    let mut looks = stream::iter(due)
        .map(|(name, sid, known)| async move {
            let looked = look_at(state, livekit, &name, &sid, known).await;
            (name, looked)
        })
        .buffer_unordered(CONCURRENT_LOOKS);
    let mut failure = None;
    while let Some((name, looked)) = looks.next().await {
        match looked {
            Ok(room) => {
                unserved.insert(name, room);
            }
            // The other rooms may be in order.
            Err(error @ (ApiFailure::Refused(..) | ApiFailure::Malformed)) => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// One look at a room without a running call. `known`: the last look at it.
async fn look_at(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    name: &str,
    sid: &str,
    known: Option<UnservedRoom>,
) -> Result<UnservedRoom, ApiFailure> {
    let now = Instant::now();
    let is_current = |known: &UnservedRoom| {
        known.job.is_some() || now.duration_since(known.looked_at) < FOREIGN_TIME
    };
    let mut room = match known.filter(is_current) {
        Some(known) => known,
        None => {
            let job = find_job(state, livekit, name, sid).await?;
            UnservedRoom { job, looked_at: now, lonely_since: None }
        }
    };
    let Some(job) = &room.job else { return Ok(room) };
    let Some(cause) = find_cause(state, livekit, name, job).await? else {
        room.lonely_since = None;
        return Ok(room);
    };
    let since = *room.lonely_since.get_or_insert(now);
    let is_due = now.saturating_duration_since(since) >= UNREPORTED_WAIT;
    if is_due && rescue(state, livekit, name, job, cause) {
        // The next attempt comes only if this one fails.
        room.lonely_since = Some(now + RETRY_PAUSE);
    }
    Ok(room)
}

/// Looks at the rooms that webhooks report: each has an agent soon, or gets one.
async fn watch_reports(state: Arc<AppState>, livekit: Arc<LiveKit>) {
    let Some(mut reports) = livekit.take_reports() else { return };
    while let Some(room) = reports.recv().await {
        if !livekit.rooms.is_served(&room.name) {
            tokio::spawn(check_later(Arc::clone(&state), Arc::clone(&livekit), room));
        }
    }
}

async fn check_later(state: Arc<AppState>, livekit: Arc<LiveKit>, room: ReportedRoom) {
    sleep(REPORTED_WAIT).await;
    let ReportedRoom { name, sid } = room;
    if livekit.rooms.is_served(&name) {
        return;
    }
    let looked = async {
        let Some(job) = find_job(&state, &livekit, &name, &sid).await? else { return Ok(()) };
        if let Some(cause) = find_cause(&state, &livekit, &name, &job).await? {
            rescue(&state, &livekit, &name, &job, cause);
        }
        Ok::<(), ApiFailure>(())
    };
    if let Err(error) = looked.await {
        tracing::warn!(room = name, %error, "cannot look at a LiveKit room");
    }
}

/// The job of a room of ours.
struct OwnJob {
    room_sid: String,
    metadata: String,
}

/// The job of a room, if the room is one of ours.
async fn find_job(
    state: &AppState,
    livekit: &LiveKit,
    room: &str,
    room_sid: &str,
) -> Result<Option<OwnJob>, ApiFailure> {
    let dispatches = livekit.api.dispatches(room).await?;
    let name = &livekit.config.agent_name;
    let metadata = match dispatches.into_iter().find(|one| one.agent_name == *name) {
        Some(dispatch) => dispatch.metadata,
        None => {
            // Another installation may use the same LiveKit project, and names like ours.
            let Some(id) = rooms::conversation_of_name(room) else { return Ok(None) };
            match state.store.conversation_in_any_workspace(id).await {
                Ok(Some(_)) => serde_json::json!({ "conversation_id": id }).to_string(),
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    };
    Ok(Some(OwnJob { room_sid: room_sid.to_owned(), metadata }))
}

/// Why a room has callers and no agent of ours; `None` if it needs none.
async fn find_cause(
    state: &AppState,
    livekit: &LiveKit,
    room: &str,
    job: &OwnJob,
) -> Result<Option<LostCause>, ApiFailure> {
    let participants = livekit.api.participants(room).await?;
    let mut present = participants.iter().filter(|one| one.state() != State::Disconnected);
    let has_caller = present.clone().any(|one| !matches!(one.kind(), Kind::Agent | Kind::Egress));
    if !has_caller || present.any(|one| is_our_agent(one, livekit)) {
        return Ok(None);
    }
    // A call that is over needs no agent, and one that runs has lost its agent for a moment only. If
    // its server has failed, the call ends with an error.
    let Ok(row) = conversation_of(state, room, &job.room_sid).await else { return Ok(None) };
    Ok(match row {
        Some(row) if has_failed(&row) => Some(LostCause::WorkerLost),
        Some(row) if row.status != STARTED => None,
        _ => Some(cause_of(livekit, room)),
    })
}

/// Whether the call of a conversation was ended by an error.
pub(super) fn has_failed(row: &Row) -> bool {
    row.status == ENDED && row.end_reason.as_deref() == Some(ERROR_REASON)
}

/// The conversation of a room, if there was one.
async fn conversation_of(
    state: &AppState,
    room: &str,
    room_sid: &str,
) -> store::Result<Option<Row>> {
    let stored = state.store.conversation_of_room(room_sid).await?;
    let Some(id) = stored.or_else(|| rooms::conversation_of_name(room).map(str::to_owned)) else {
        return Ok(None);
    };
    state.store.conversation_in_any_workspace(&id).await
}

/// Whether a participant is an agent that serves the room for us.
fn is_our_agent(participant: &proto::ParticipantInfo, livekit: &LiveKit) -> bool {
    participant.kind() == Kind::Agent
        && participant.attributes.get("lk.agent_name") == Some(&livekit.config.agent_name)
}

/// Serves a room without a job of LiveKit. Returns whether it is tried.
fn rescue(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    room: &str,
    job: &OwnJob,
    cause: LostCause,
) -> bool {
    if worker::refusal(state).is_some() || was_tried_lately(livekit, room) {
        return false;
    }
    let Some(reservation) = state.engine().reserve_call() else { return false };
    let Some(guard) = RoomGuard::take(livekit, room, None) else { return false };
    tracing::warn!(room, cause = cause.name(), "LiveKit has lost a job");
    livekit.rooms.count_lost(cause);
    let job = RoomJob {
        room: room.to_owned(),
        identity: worker::identity_of(&uuid::Uuid::new_v4().simple().to_string()),
        room_sid: job.room_sid.clone(),
        metadata: job.metadata.clone(),
        job: None,
        server_url: None,
    };
    let (state, livekit) = (Arc::clone(state), Arc::clone(livekit));
    tokio::spawn(async move {
        let served = job::serve_guarded(&state, &livekit, &job, Some(reservation), guard).await;
        if let Err(error) = served {
            livekit.rooms.count_failed_job();
            tracing::warn!(room = job.room, %error, "a room without an agent cannot be served");
        }
    });
    true
}

/// Whether this server has tried a moment ago, or cannot serve the room at all.
fn was_tried_lately(livekit: &LiveKit, room: &str) -> bool {
    livekit.rooms.last_step(room).is_some_and(|(step, at)| match step {
        JobStep::Assigned | JobStep::Failed => at.elapsed() < FAILED_PAUSE,
        // It would fail again.
        JobStep::Invalid => true,
        JobStep::Refused | JobStep::Accepted => false,
    })
}

fn cause_of(livekit: &LiveKit, room: &str) -> LostCause {
    match livekit.rooms.last_step(room) {
        Some((JobStep::Refused, _)) => LostCause::Unavailable,
        Some((JobStep::Accepted, _)) => LostCause::NotAssigned,
        Some((JobStep::Assigned | JobStep::Failed | JobStep::Invalid, _)) => LostCause::WorkerLost,
        None => livekit.dispatch.cause_of_unasked(),
    }
}
