//! The avatar's video. Phones become lip shapes, and the agent's state becomes idle motion. Both
//! select a frame that was encoded in advance.
//!
//! ```text
//! tts phones ─► visemes (blended) ──────────────┐
//! state, time ─► idle_motion (blinks, gaze …) ──┴─► animator ─► pose_cache ─► VP8 frame, shared
//!                                                               (nearest baked pose)
//! ```
//!
//! Nothing is drawn or encoded here: a frame is a reference into the [`models::face::PoseSet`] that
//! all calls share.

pub mod animator;
pub mod avatars;
mod bandwidth_estimator;
pub mod frame_clock;
pub mod gesture_words;
pub mod idle_motion;
pub mod pose_cache;
pub mod visemes;

pub use animator::AvatarAnimator;
pub(crate) use avatars::AvatarLibrary;
pub use avatars::{Avatar, Avatars, StockAvatar};
pub use frame_clock::FrameClock;
