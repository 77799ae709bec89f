//! From samples of the agent's speech to packets.

use std::hint::black_box;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench, bench_each};
use benches::recording;
use conversation::input::{Epoch, SegmentId};
use criterion::Criterion;
use engine::speak::encode::{self, Encoder};
use engine::speak::playout::{FRAME_SAMPLES_48K, Playout};
use models::lips::PhoneRecognizer;

/// Frames of one segment: two seconds.
const FRAMES_PER_SEGMENT: usize = 100;
/// Frames of a TTS chunk: .1 s.
const FRAMES_PER_CHUNK: usize = 5;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    bench_lips(c);
    bench_playout(c);
    bench_encode(c);
}

/// Runs on the TTS thread if the TTS reports no phones.
fn bench_lips(c: &mut Criterion<CpuTime>) {
    let speech = recording::speech_frames();
    let mut lips = PhoneRecognizer::new();
    let mut next = speech.iter().cycle();
    bench_each(c, "lips: 20 ms of speech without phones", || {
        if let Some(block) = next.next() {
            black_box(lips.push(black_box(block)));
        }
    });
}

/// CPU time of `count` frames of consecutive segments that are queued, played and finished.
fn time_playout(speech: &[i16], ducked: bool, count: u64) -> Duration {
    let mut playout = Playout::default();
    let (mut frame, mut reports) = ([0; FRAME_SAMPLES_48K], Vec::with_capacity(8));
    let mut total = Duration::ZERO;
    for number in 0..count.div_ceil(FRAMES_PER_SEGMENT as u64) {
        let frames =
            (count - number * FRAMES_PER_SEGMENT as u64).min(FRAMES_PER_SEGMENT as u64) as usize;
        // The TTS thread allocates them.
        let mut chunks: Vec<Vec<i16>> = speech
            .chunks(FRAMES_PER_CHUNK * FRAME_SAMPLES_48K)
            .take(FRAMES_PER_SEGMENT / FRAMES_PER_CHUNK)
            .map(Vec::from)
            .collect();
        chunks.reverse();
        let segment = SegmentId(number as u32);
        total += cpu::measure(|| {
            playout.add_segment(segment, Epoch(number as u32));
            playout.play(segment);
            if ducked {
                playout.duck();
            }
            for n in 0..frames {
                if n % FRAMES_PER_CHUNK == 0
                    && let Some(chunk) = chunks.pop()
                {
                    playout.push(segment, chunk);
                }
                if n + 1 == FRAMES_PER_SEGMENT {
                    playout.complete(segment);
                }
                playout.render(&mut frame, &mut reports);
                black_box(&frame);
                reports.clear();
            }
        });
    }
    assert_eq!(playout.underruns(), 0, "every block had its samples");
    total
}

/// CPU time while the agent is silent.
fn time_silence(count: u64) -> Duration {
    let mut playout = Playout::default();
    let (mut frame, mut reports) = ([0; FRAME_SAMPLES_48K], Vec::new());
    cpu::measure(|| {
        for _ in 0..count {
            playout.render(&mut frame, &mut reports);
            black_box(&frame);
        }
    })
}

fn bench_playout(c: &mut Criterion<CpuTime>) {
    let speech = recording::speech_frames().concat();
    bench(c, "playout: 20 ms of speech", |count| time_playout(&speech, false, count));
    bench(c, "playout: 20 ms of speech, ducked", |count| time_playout(&speech, true, count));
    bench(c, "playout: 20 ms of silence", time_silence);
}

fn bench_encode(c: &mut Criterion<CpuTime>) {
    let speech = recording::speech_frames();
    let mut encoder = Encoder::new().expect("an encoder");
    for (name, lost) in
        [("encode: 20 ms of speech", 0.0), ("encode: 20 ms of speech for a line that loses", 0.1)]
    {
        encoder.on_packet_loss(lost).expect("it codes for loss");
        let mut next = speech.iter().cycle();
        bench_each(c, name, || {
            if let Some(block) = next.next() {
                black_box(encoder.encode(black_box(block)).is_ok());
            }
        });
    }
    let mut encoder = Encoder::new().expect("an encoder");
    let silence = [0; encode::FRAME_SAMPLES_48K];
    // The first few frames are encoded, until the packet no longer changes.
    for _ in 0..20 {
        encoder.encode(&silence).expect("a packet");
    }
    bench_each(c, "encode: 20 ms of silence, the kept packet", || {
        encoder.encode(black_box(&silence)).is_ok()
    });
}
