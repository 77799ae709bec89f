//! Avatars: each pose is drawn and encoded once, and shared by every call.

mod avatar_renderer;
pub mod avatar_source;
pub mod avatar_spec;
pub mod background;
pub mod bake;
pub mod bake_request;
mod breath;
mod character_avatar;
pub mod character_schema;
mod cutout;
mod frames;
mod lip_quantizer;
mod manifest;
mod matte;
pub mod photo_avatar;
pub mod photo_source;
pub mod photo_upload;
pub mod picture;
mod plan_heads;
pub mod plan_subset;
pub mod pose_plan;
pub mod pose_set;
mod rasterize;
pub mod vp8;
mod vp8_header;
pub mod webp;

pub use bake::PLAN_VERSION;
pub use character::{
    Brows, Character, CharacterRenderer, Eyes, Framing, Head, HeadView, Mouth, Pose, Rect,
};
pub use photo::{Landmarks, Photo};
pub use pose_set::{HeadName, Look, Mood, PoseId, PoseSet, SpeakingHead, Stance};
