//! Complete 10 ms ticks of a media thread whose agents speak half of the time: no network, codecs
//! or video.

use std::time::Duration;

use benches::cpu::CpuTime;
use benches::instructions::count_instructions;
use criterion::{Criterion, SamplingMode};

use super::harness::{Harness, STAGGER_TICKS, TURN_FRAMES};

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("tick");
    // Each sample covers the same number of ticks.
    group.sampling_mode(SamplingMode::Flat);
    for calls in [1, 10, 100, 400, 800] {
        let name = format!("{calls} {}", if calls == 1 { "conversation" } else { "conversations" });
        let mut harness = None;
        let mut work = |count| {
            // Created here, so that a bench that is filtered out does not create it.
            let harness = harness.get_or_insert_with(|| Harness::with_calls(calls));
            (0..count).map(|_| harness.tick()).sum::<Duration>()
        };
        // Covers all positions of a turn: one whole turn of a single call, or few ticks of many
        // calls, which are all at different positions.
        let ticks = (2 * TURN_FRAMES / calls).max(4 * STAGGER_TICKS) as u64;
        if !count_instructions(&format!("tick/{name}"), ticks, &mut work) {
            group.bench_function(name, |b| b.iter_custom(&mut work));
        }
        let share = harness.as_ref().and_then(|harness| harness.speech_share.share());
        assert!(
            share.is_none_or(|share| (0.4..0.6).contains(&share)),
            "agents spoke {share:?} of the time"
        );
    }
    group.finish();
}
