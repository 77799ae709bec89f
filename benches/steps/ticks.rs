//! All that a media thread does in 10 ms, its calls half talking: no network, no codec, no face.

use std::time::Duration;

use benches::cpu::CpuTime;
use criterion::{Criterion, SamplingMode};

use super::world::World;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("tick");
    // Each sample sees as much of the talk as any other.
    group.sampling_mode(SamplingMode::Flat);
    for calls in [1, 10, 100, 400, 800] {
        let name = format!("{calls} {}", if calls == 1 { "conversation" } else { "conversations" });
        let mut world = None;
        group.bench_function(name, |b| {
            // Here, so that none is made for a bench that nobody asked for.
            let world = world.get_or_insert_with(|| World::with(calls));
            b.iter_custom(|count| (0..count).map(|_| world.tick()).sum::<Duration>());
        });
        let share = world.and_then(|world| world.spoken.share());
        assert!(share.is_none_or(|share| (0.4..0.6).contains(&share)), "agents spoke {share:?} of the time");
    }
    group.finish();
}
