//! Being built.

pub mod web;
