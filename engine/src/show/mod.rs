//! The agent's face: phones become lips, states become manners, and both choose one of the pictures that were encoded long before.
//!
//! ```text
//! tts phones ─► pose (visemes, blended) ─┐
//! state, time ─► life (blinks, gaze …) ──┴─► face ─► pose_cache (nearest baked pose) ─► VP8 frame, shared
//! ```
//!
//! Nothing is drawn or encoded here: a frame is a reference into the [`models::animator::PoseSet`] that all calls share.

pub mod animator;
pub mod avatars;
mod bandwidth_estimator;
pub mod frame_clock;
pub mod idle_motion;
pub mod pose_cache;
pub mod visemes;

pub use animator::AvatarAnimator;
pub(crate) use avatars::AvatarLibrary;
pub use avatars::{Avatar, Avatars, StockAvatar};
pub use frame_clock::FrameClock;
