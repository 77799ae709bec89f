//! The rooms that this server serves, so that none is served twice, and what LiveKit has lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conversation::id::ConversationId;
use tokio::time::Instant;

/// Start of the names of rooms that this software creates. The id of the conversation follows.
const ROOM_PREFIX: &str = "visavis-";
/// Maximum number of rooms that are remembered for the cause of a lost job.
const MAX_REMEMBERED: usize = 10_000;

/// Why LiveKit did not bring an agent into a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostCause {
    /// No worker of ours was registered, or LiveKit did not know it yet.
    NoWorker,
    /// We answered or reported that we are full or draining.
    Unavailable,
    /// LiveKit did not ask although a worker was registered: another worker did not answer, for
    /// example.
    NotAsked,
    /// We accepted, and no assignment came: the answer was too late, or lost.
    NotAssigned,
    /// The agent was in the room and disappeared.
    WorkerLost,
}

impl LostCause {
    /// All causes.
    pub(crate) const ALL: [Self; 5] =
        [Self::NoWorker, Self::Unavailable, Self::NotAsked, Self::NotAssigned, Self::WorkerLost];

    /// The cause in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoWorker => "no_worker",
            Self::Unavailable => "unavailable",
            Self::NotAsked => "not_asked",
            Self::NotAssigned => "not_assigned",
            Self::WorkerLost => "worker_lost",
        }
    }
}

/// What happened to the last job of a room here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStep {
    /// We refused it.
    Refused,
    /// We accepted it.
    Accepted,
    /// It was assigned, and the agent joins.
    Assigned,
    /// Its call has failed.
    Failed,
    /// It cannot be served: it names no agent, for example.
    Invalid,
}

struct Served {
    conversation: Option<ConversationId>,
    job: Option<String>,
}

/// The rooms of this server.
#[derive(Default)]
pub(crate) struct Rooms {
    served: Mutex<HashMap<String, Served>>,
    steps: Mutex<HashMap<String, (JobStep, Instant)>>,
    lost: [AtomicU64; LostCause::ALL.len()],
    failed_jobs: AtomicU64,
    accepted_jobs: AtomicU64,
}

/// Marks a room as served until it is dropped.
pub(crate) struct RoomGuard {
    rooms: Arc<super::LiveKit>,
    room: String,
}

impl Drop for RoomGuard {
    fn drop(&mut self) {
        lock(&self.rooms.rooms.served).remove(&self.room);
    }
}

impl RoomGuard {
    /// Marks the room as served; `None` if it is.
    pub(crate) fn take(
        livekit: &Arc<super::LiveKit>,
        room: &str,
        job: Option<&str>,
    ) -> Option<Self> {
        let mut served = lock(&livekit.rooms.served);
        if served.contains_key(room) {
            return None;
        }
        let job = job.map(str::to_owned);
        served.insert(room.to_owned(), Served { conversation: None, job });
        Some(Self { rooms: Arc::clone(livekit), room: room.to_owned() })
    }

    /// Notes whose conversation takes place in the room.
    pub(crate) fn set_conversation(&self, id: ConversationId) {
        if let Some(served) = lock(&self.rooms.rooms.served).get_mut(&self.room) {
            served.conversation = Some(id);
        }
    }
}

impl Rooms {
    /// Whether this server serves the room.
    pub(crate) fn is_served(&self, room: &str) -> bool {
        lock(&self.served).contains_key(room)
    }

    /// Number of rooms that are served.
    pub(crate) fn count(&self) -> usize {
        lock(&self.served).len()
    }

    /// The conversation of a job.
    pub(crate) fn conversation_of(&self, job: &str) -> Option<ConversationId> {
        let served = lock(&self.served);
        served.values().find(|one| one.job.as_deref() == Some(job))?.conversation
    }

    /// Notes what happened to a room's job.
    pub(crate) fn note_step(&self, room: &str, step: JobStep) {
        let mut steps = lock(&self.steps);
        if steps.len() >= MAX_REMEMBERED {
            let oldest = steps.iter().min_by_key(|(_, (_, at))| *at).map(|(room, _)| room.clone());
            oldest.and_then(|room| steps.remove(&room));
        }
        steps.insert(room.to_owned(), (step, Instant::now()));
        if step == JobStep::Accepted {
            self.accepted_jobs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The last step of a room's job, and when it was.
    pub(crate) fn last_step(&self, room: &str) -> Option<(JobStep, Instant)> {
        lock(&self.steps).get(room).copied()
    }

    pub(crate) fn count_lost(&self, cause: LostCause) {
        self.lost[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of lost jobs by cause.
    pub(crate) fn lost_counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |cause: LostCause| self.lost[cause as usize].load(Ordering::Relaxed);
        LostCause::ALL.into_iter().map(move |cause| (cause.name(), count(cause)))
    }

    pub(crate) fn count_failed_job(&self) {
        self.failed_jobs.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of jobs that were accepted, and of those that failed.
    pub(crate) fn job_counts(&self) -> (u64, u64) {
        (self.accepted_jobs.load(Ordering::Relaxed), self.failed_jobs.load(Ordering::Relaxed))
    }
}

/// Name of the room of a conversation that this software gives a room.
pub(crate) fn name_of(conversation: &str) -> String {
    format!("{ROOM_PREFIX}{conversation}")
}

/// The conversation of a room that has such a name.
pub(crate) fn conversation_of_name(room: &str) -> Option<&str> {
    room.strip_prefix(ROOM_PREFIX).filter(|id| uuid::Uuid::parse_str(id).is_ok())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_our_rooms_contain_their_conversation() {
        let id = "3ded4f82-f64a-4e8a-a53e-471f8880c163";
        assert_eq!(conversation_of_name(&name_of(id)), Some(id));
        for other in ["visavis-", "visavis-x", "room", id] {
            assert_eq!(conversation_of_name(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn steps_of_a_bounded_number_of_rooms_are_remembered() {
        let rooms = Rooms::default();
        for n in 0..MAX_REMEMBERED + 5 {
            rooms.note_step(&n.to_string(), JobStep::Refused);
        }
        assert_eq!(lock(&rooms.steps).len(), MAX_REMEMBERED);
        assert_eq!(rooms.job_counts(), (0, 0));
    }
}
