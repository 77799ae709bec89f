//! CPU time of the pure conversation: of one input, and of an hour of talk.

use std::hint::black_box;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench};
use benches::{instructions, talk};
use conversation::conversation::Conversation;
use conversation::input::Input;
use conversation::simulate::simulate;
use conversation::time::Time;
use criterion::{Criterion, criterion_group, criterion_main};

const HOUR: u64 = 360;

/// CPU time of the first `count` inputs of a call; beyond its end, a new conversation starts again.
fn play(inputs: &[(Time, Input)], mut count: u64) -> Duration {
    let mut total = Duration::ZERO;
    while count > 0 {
        let part = &inputs[..inputs.len().min(usize::try_from(count).unwrap_or(usize::MAX))];
        let given = part.to_vec();
        let mut conversation = Conversation::new(talk::spec());
        total += cpu::taken(|| {
            for (at, input) in given {
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

fn inputs(c: &mut Criterion<CpuTime>) {
    let hour = talk::inputs(HOUR);
    bench(c, "conversation: one input of an hour's call", |count| play(&hour, count));
    let mut slow = c.benchmark_group("conversation");
    slow.sample_size(20);
    let mut slowly = |name: &str, work: &mut dyn FnMut(u64) -> Duration| {
        if !instructions::counted(&format!("conversation/{name}"), 1, work) {
            slow.bench_function(name, |b| b.iter_custom(&mut *work));
        }
    };
    slowly("all inputs of an hour's call", &mut |count| {
        (0..count).map(|_| play(&hour, hour.len() as u64)).sum()
    });
    let scenario = talk::scenario(HOUR);
    slowly("an hour of talk, simulated", &mut |count| {
        (0..count).map(|_| cpu::taken(|| simulate(black_box(scenario.as_bytes()), false))).sum()
    });
}

criterion_group! {
    name = conversation;
    config = Criterion::default().with_measurement(CpuTime);
    targets = inputs
}
criterion_main!(conversation);
