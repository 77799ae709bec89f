//! What benches and the tests of promised numbers share.
//!
//! Time is CPU time of the thread that works: on a machine with other work to do the wall clock measures the neighbours.

pub mod allocation;
pub mod cpu;
pub mod instructions;
pub mod sound;
pub mod talk;
