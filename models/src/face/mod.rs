//! Avatars: each pose is drawn and encoded once, and shared by every call.

pub mod avatar_spec;
pub mod bake;
mod breath;
pub mod character_schema;
mod frames;
pub mod picture;
pub mod pose_plan;
pub mod pose_set;
mod rasterize;
pub mod vp8;
mod vp8_header;
pub mod webp;

pub use character::{Brows, Character, CharacterRenderer, Eyes, Head, HeadView, Mouth, Pose, Rect};
pub use pose_set::{Look, PoseId, PoseSet, Stance};
