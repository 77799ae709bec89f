//! The agent's face: phones become lips, states become manners, and both choose one of the pictures that were encoded long before.
//!
//! ```text
//! tts phones ─► pose (visemes, blended) ─┐
//! state, time ─► life (blinks, gaze …) ──┴─► face ─► pose_cache (nearest baked pose) ─► VP8 frame, shared
//! ```
//!
//! Nothing is drawn or encoded here: a frame is a reference into the [`models::face::PoseSet`] that all calls share.

pub mod face;
pub mod library;
pub mod life;
mod line;
pub mod pace;
pub mod pose;
pub mod pose_cache;

pub use face::Face;
pub(crate) use library::Library;
pub use library::{Avatar, Avatars, StockAvatar};
pub use pace::Pace;
