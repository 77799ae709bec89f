//! Each step of an audio frame's path, and whole ticks of a media thread, in CPU time. `benches/budgets.toml` has a limit for each.
//!
//! An iteration is what a call does once, as its name says: mostly 20 ms of sound. What a step is given is made outside of what is measured.

mod hear;
mod hop;
mod show;
mod speak;
mod ticks;
mod wire;
mod world;

use std::time::Duration;

use benches::cpu::CpuTime;
use criterion::{Criterion, criterion_group, criterion_main};

/// Short, so that all of `make bench` is a matter of minutes: a budget is no fine comparison.
fn settings() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .nresamples(2_000)
}

criterion_group! {
    name = steps;
    config = settings();
    targets = hear::benches, speak::benches, show::benches, hop::benches, wire::benches, ticks::benches
}
criterion_main!(steps);
