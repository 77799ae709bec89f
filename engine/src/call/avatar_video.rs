//! The avatar video of a call.

use std::sync::Arc;
use std::time::Duration;

use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::output::TtsRequest;
use conversation::time::Time;

use crate::show::pose_cache::PoseCache;
use crate::show::{AvatarAnimator, FrameClock};
use crate::speak::manners::Manners;

/// Speech with an expression of its own starts at most this long after its request to the TTS, so
/// that the face shows the expression first. A TTS that takes longer delays nothing.
const MAX_LEAD_IN: Duration = Duration::from_millis(360);

/// The avatar video of a call.
pub(super) struct AvatarVideo {
    pub(super) animator: AvatarAnimator,
    pub(super) frame_clock: FrameClock,
    manners: Manners,
    agent_state: AgentState,
    is_held: bool,
    /// Until when the face changes to the expression of a segment.
    expression_due: Option<(SegmentId, Time)>,
}

impl AvatarVideo {
    /// The video of an avatar with these poses, with frames per second. The same `seed` gives the
    /// same movements. `greets`: the agent speaks first.
    pub(super) fn new(poses: Arc<PoseCache>, frame_rate: u32, seed: u64, greets: bool) -> Self {
        let mut animator = AvatarAnimator::with_poses(poses, frame_rate, seed);
        if greets {
            animator.expect_greeting();
        }
        Self {
            animator,
            frame_clock: FrameClock::new(frame_rate, Time::ZERO),
            manners: Manners::default(),
            agent_state: AgentState::Listening,
            is_held: false,
            expression_due: None,
        }
    }

    /// Sets what has changed: the agent's state, and whether its speech is held.
    pub(super) fn set_state(&mut self, state: Option<AgentState>, held: Option<bool>) {
        self.agent_state = state.unwrap_or(self.agent_state);
        self.is_held = held.unwrap_or(self.is_held);
        self.animator.set_state(self.agent_state, self.is_held);
    }

    /// A segment is requested from the TTS.
    pub(super) fn announce_segment(&mut self, request: &TtsRequest, now: Time) {
        let shown_as = self.manners.manner_of(request);
        // The segment after one that waits is requested before that plays.
        let one_waits = self.expression_due.is_some_and(|(_, due)| due > now);
        let begins = self.agent_state != AgentState::Speaking && !self.is_held && !one_waits;
        if shown_as.leads_in && begins {
            let needed = self.animator.time_to_show(shown_as.expression, now).min(MAX_LEAD_IN);
            self.expression_due = Some((request.segment, now + needed));
        }
        self.animator.announce_segment(request.segment, shown_as);
    }

    /// Silence before a segment that may play from now on.
    pub(super) fn lead_in(&mut self, segment: SegmentId, now: Time) -> Duration {
        let due = self.expression_due.take_if(|(delayed, _)| *delayed == segment);
        due.map_or(Duration::ZERO, |(_, due)| due.since(now))
    }
}
