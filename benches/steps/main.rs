//! CPU time of each step of an audio frame's path, and of whole ticks of a media thread.
//! `benches/budgets.toml` has a limit for each.
//!
//! One iteration is what a call does once, as the bench's name says: usually 20 ms of audio. The
//! input of a step is created outside the measurement.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod film;
mod harness;
mod hear;
mod inbox;
mod photo;
mod record;
mod show;
mod speak;
mod ticks;
mod webrtc;

use std::time::Duration;

use benches::cpu::CpuTime;
use criterion::{Criterion, criterion_group, criterion_main};

/// Short, so that `make bench` takes only minutes: a budget needs no precise comparison.
fn criterion_config() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .nresamples(2_000)
}

criterion_group! {
    name = steps;
    config = criterion_config();
    targets = hear::benches, speak::benches, show::benches, inbox::benches, webrtc::benches,
        ticks::benches, record::benches, film::benches, photo::benches
}
criterion_main!(steps);
