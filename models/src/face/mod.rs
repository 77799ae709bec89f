//! Avatars: each pose is drawn and encoded once, and shared by every call.

pub mod bake;
mod breath;
mod drawn;
pub mod form;
mod frames;
pub mod people;
pub mod picture;
pub mod plan;
pub mod set;
pub mod vp8;
mod vp8_header;
pub mod webp;

pub use character::{Brows, Character, Eyes, Head, Mouth, Pose, Rect, Sitter, Stage};
pub use set::{Key, Look, PoseSet, Stance};
