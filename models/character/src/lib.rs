//! A drawn person and a pose → a picture.
//!
//! Pure: no file, clock or randomness from outside; the same bits for any number of threads.

mod pose;

pub use pose::{Brows, Eyes, Head, Mouth, Pose};
