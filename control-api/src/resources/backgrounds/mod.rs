//! Backgrounds of avatars as requests contain them.

pub(crate) mod fields;
pub(crate) mod images;
