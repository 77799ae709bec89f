//! CPU time as a measurement for Criterion and for the tests.

use std::time::Duration;

use cpu_time::ThreadTime;
use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use crate::instructions;

/// Number of iterations whose instructions are counted: usually 6 s of audio.
const COUNTED_ITERATIONS: u64 = 300;

/// CPU time of the calling thread.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = ThreadTime;
    type Value = Duration;

    fn start(&self) -> ThreadTime {
        ThreadTime::now()
    }

    fn end(&self, start: ThreadTime) -> Duration {
        start.elapsed()
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        static WALL: WallTime = WallTime;
        WALL.formatter()
    }
}

/// CPU time of `work`. Under Valgrind, only instructions in here are counted.
pub fn measure<T>(work: impl FnOnce() -> T) -> Duration {
    let start = ThreadTime::now();
    instructions::toggle_collection();
    std::hint::black_box(work());
    instructions::toggle_collection();
    start.elapsed()
}

/// A bench: `work` runs the given number of iterations, and returns their CPU time by [`measure`].
pub fn bench(c: &mut Criterion<CpuTime>, name: &str, work: impl FnMut(u64) -> Duration) {
    bench_with_count(c, name, COUNTED_ITERATIONS, work);
}

/// The same with another number of iterations whose instructions are counted.
pub fn bench_with_count(
    c: &mut Criterion<CpuTime>,
    name: &str,
    counted_iterations: u64,
    mut work: impl FnMut(u64) -> Duration,
) {
    if !instructions::count_instructions(name, counted_iterations, &mut work) {
        c.bench_function(name, |b| b.iter_custom(&mut work));
    }
}

/// A bench with `work` as one iteration.
pub fn bench_each<T>(c: &mut Criterion<CpuTime>, name: &str, mut work: impl FnMut() -> T) {
    bench(c, name, |count| {
        measure(|| {
            for _ in 0..count {
                std::hint::black_box(work());
            }
        })
    });
}
