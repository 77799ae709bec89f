//! What stays of a call: its facts, and its inputs if they are traced.

pub mod trace;
