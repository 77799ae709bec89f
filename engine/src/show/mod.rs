//! The avatar's video. Phones become lip shapes, and the agent's state becomes idle motion. Both
//! select a frame that was encoded in advance.
//!
//! ```text
//! tts phones ─┬─► visemes (blended) ───────────────────────┐
//!             └─► rhythm ─┐                                │
//! words, manner, state ───┴─► motion (head, eyes, chest) ──┴─► animator ─► pose_cache ─► VP8 frame,
//! user's words ─► listener_cues ─┘                                         (nearest pose)  shared
//! ```
//!
//! Nothing is drawn or encoded here: a frame is a reference into the [`models::face::PoseSet`] that
//! all calls share.

pub mod animator;
pub mod avatars;
mod bandwidth_estimator;
mod eyes;
pub mod frame_clock;
mod gesture_route;
mod head_motion;
mod head_mover;
mod listener_cues;
mod listening;
mod mood;
mod motion;
mod nearest;
pub mod pose_cache;
mod rhythm;
mod stance_paths;
#[cfg(test)]
mod test_poses;
pub mod visemes;

pub use animator::AvatarAnimator;
pub(crate) use avatars::AvatarLibrary;
pub use avatars::{Avatar, Avatars, StockAvatar};
pub use frame_clock::FrameClock;
pub use motion::PoseState;
