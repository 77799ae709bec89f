//! The avatar video of a call.

use std::sync::Arc;

use conversation::event::AgentState;
use conversation::output::TtsRequest;
use conversation::time::Time;

use crate::show::pose_cache::PoseCache;
use crate::show::{AvatarAnimator, FrameClock};
use crate::speak::manners::Manners;

/// The avatar video of a call.
pub(super) struct AvatarVideo {
    pub(super) animator: AvatarAnimator,
    pub(super) frame_clock: FrameClock,
    manners: Manners,
    agent_state: AgentState,
    is_held: bool,
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
        }
    }

    /// Sets what has changed: the agent's state, and whether its speech is held.
    pub(super) fn set_state(&mut self, state: Option<AgentState>, held: Option<bool>) {
        self.agent_state = state.unwrap_or(self.agent_state);
        self.is_held = held.unwrap_or(self.is_held);
        self.animator.set_state(self.agent_state, self.is_held);
    }

    /// A segment is requested from the TTS.
    pub(super) fn announce_segment(&mut self, request: &TtsRequest) {
        self.animator.announce_segment(request.segment, self.manners.manner_of(request));
    }
}
