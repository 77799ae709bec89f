//! CPU time of the pure conversation: of one input, and of an hour of talk.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::hint::black_box;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench};
use benches::{instructions, simulated_call};
use conversation::conversation::Conversation;
use conversation::input::Input;
use conversation::simulate::simulate;
use conversation::time::Time;
use criterion::{Criterion, criterion_group, criterion_main};

const TURNS_PER_HOUR: u64 = 360;

/// CPU time of the first `count` inputs of a call; beyond its end, a new conversation starts again.
fn time_inputs(inputs: &[(Time, Input)], mut count: u64) -> Duration {
    let mut total = Duration::ZERO;
    while count > 0 {
        let part = &inputs[..inputs.len().min(usize::try_from(count).unwrap_or(usize::MAX))];
        let chunk = part.to_vec();
        let mut conversation = Conversation::new(simulated_call::call_spec());
        total += cpu::measure(|| {
            for (at, input) in chunk {
                conversation.handle(input, at);
                while let Some(output) = conversation.poll() {
                    black_box(output);
                }
            }
        });
        count -= part.len() as u64;
    }
    total
}

fn bench_inputs(c: &mut Criterion<CpuTime>) {
    let hour = simulated_call::call_inputs(TURNS_PER_HOUR);
    bench(c, "conversation: one input of an hour's call", |count| time_inputs(&hour, count));
    let mut slow = c.benchmark_group("conversation");
    slow.sample_size(20);
    let mut bench_slow = |name: &str, work: &mut dyn FnMut(u64) -> Duration| {
        if !instructions::count_instructions(&format!("conversation/{name}"), 1, work) {
            slow.bench_function(name, |b| b.iter_custom(&mut *work));
        }
    };
    bench_slow("all inputs of an hour's call", &mut |count| {
        (0..count).map(|_| time_inputs(&hour, hour.len() as u64)).sum()
    });
    let scenario = simulated_call::scenario(TURNS_PER_HOUR);
    bench_slow("an hour of talk, simulated", &mut |count| {
        (0..count).map(|_| cpu::measure(|| simulate(black_box(scenario.as_bytes()), false))).sum()
    });
}

criterion_group! {
    name = conversation;
    config = Criterion::default().with_measurement(CpuTime);
    targets = bench_inputs
}
criterion_main!(conversation);
