//! Faces: a person's poses, each drawn and encoded once and shared by every call.

pub mod bake;
mod breath;
pub mod people;
pub mod picture;
mod plan;
pub mod set;
pub mod vp8;

pub use character::{Brows, Eyes, Head, Mouth};
pub use set::{Key, Look, PoseSet, Stance};
