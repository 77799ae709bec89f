//! From packets of the user's audio to the decision whether the user speaks.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench, bench_each};
use benches::instructions::under_valgrind;
use benches::recording;
use bytes::Bytes;
use conversation::spec;
use conversation::time::Time;
use criterion::Criterion;
use engine::clock;
use engine::hear::AudioInput;
use engine::hear::decode::Decoder;
use engine::hear::jitter::{Frame, FrameKind, JitterBuffer};
use engine::hear::vad::{BatchedVad, NetworkState, Vad as _, WINDOW};
use models::vad::{Isa, Network};

/// Duration of a packet.
const PACKET_DURATION: Duration = Duration::from_millis(20);
/// Number of windows per VAD batch of a media thread.
const VAD_BATCH_SIZE: usize = 16;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    bench_jitter_buffer(c);
    bench_decode(c);
    bench_hearing(c);
    bench_vad(c);
}

/// The folder of the models: that of the environment, or of the checkout.
pub(crate) fn models_folder() -> PathBuf {
    let named = std::env::var_os(models::paths::MODELS_DIR_VARIABLE).map(PathBuf::from);
    let checkout =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(models::paths::DEFAULT_MODELS_DIR);
    named.unwrap_or_else(checkout)
}

/// The VAD network from the model folder. When instructions are counted, it runs without fused
/// multiply-add: Valgrind emulates that lane by lane, which takes minutes.
pub(crate) fn vad_network() -> Arc<Network> {
    let path = models::paths::vad(&models_folder());
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let isa = if under_valgrind() { Isa::Portable } else { Isa::best() };
    Arc::new(Network::from_bytes(&file, isa).unwrap_or_else(|e| panic!("{e}")))
}

/// Packet numbers that arrive in each of a hundred intervals of 20 ms; the sequence repeats.
fn arrival_order(lossy: bool) -> Vec<Vec<u64>> {
    let mut order: Vec<Vec<u64>> = (0..100).map(|number| vec![number]).collect();
    if lossy {
        for lost in [7, 45, 46] {
            order[lost].clear();
        }
        for late in [20, 70] {
            order[late].clear();
            order[late + 1].push(late as u64);
        }
    }
    order
}

/// CPU time of `count` intervals: arriving packets are pushed, due frames are pulled.
fn time_receive(order: &[Vec<u64>], payload: &Bytes, count: u64) -> Duration {
    let start = clock::now();
    let mut buffer = JitterBuffer::default();
    cpu::measure(|| {
        for n in 0..count {
            let now = start + PACKET_DURATION * n as u32;
            for number in &order[(n % 100) as usize] {
                let sequence = n / 100 * 100 + number;
                buffer.push(now, sequence, sequence * 960, payload.clone());
            }
            while let Some(frame) = buffer.pull(now) {
                black_box(frame);
            }
        }
    })
}

fn bench_jitter_buffer(c: &mut Criterion<CpuTime>) {
    let payload = Bytes::from(vec![0x78; 80]);
    for (name, lossy) in
        [("jitter: 20 ms in order", false), ("jitter: 20 ms of a line that loses and swaps", true)]
    {
        let order = arrival_order(lossy);
        bench(c, name, |count| time_receive(&order, &payload, count));
    }
}

fn bench_decode(c: &mut Criterion<CpuTime>) {
    let at = clock::now();
    let frame = |kind: FrameKind| Frame { timestamp: 0, samples: 960, end_time: at, kind };
    let frames: Vec<Frame> =
        recording::opus_packets().into_iter().map(|p| frame(FrameKind::Packet(p.into()))).collect();
    let mut decoder = Decoder::new().expect("a decoder");
    let mut pcm = Vec::with_capacity(1_920);
    let mut next = frames.iter().cycle();
    bench_each(c, "decode: 20 ms of speech", || {
        pcm.clear();
        if let Some(frame) = next.next() {
            decoder.decode(black_box(frame), &mut pcm);
        }
    });
    assert_eq!(decoder.decode_failures(), 0, "the packets are Opus");
    let lost = frame(FrameKind::Conceal);
    // One in four is lost: in a run of losses, the later ones fade out and cost less.
    bench_each(c, "decode: four packets, one of them lost", || {
        pcm.clear();
        for frame in next.by_ref().take(3).chain([&lost]) {
            decoder.decode(black_box(frame), &mut pcm);
        }
    });
}

/// An STT stream that ignores its input.
struct NullSttStream;

impl models::stt::SttStream for NullSttStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, pcm: &[i16]) {
        black_box(pcm);
    }
    fn end_speech(&mut self) {}
}

/// Everything around decoder and network: windows, level, STT input, and the VAD's state machine.
fn bench_hearing(c: &mut Criterion<CpuTime>) {
    let speech = recording::utterances().concat();
    let mut frames = speech.chunks_exact(320).cycle();
    let mut audio_input = AudioInput::new(
        spec::VadTiming {
            min_speech_duration: Duration::from_millis(50),
            min_silence_duration: Duration::from_millis(250),
        },
        Box::new(NullSttStream),
        None,
    );
    let mut number = 0;
    bench_each(c, "hear: 20 ms into windows, windows into speech", || {
        number += 1;
        if let Some(frame) = frames.next() {
            audio_input.push_audio(black_box(frame), Time::from_micros(number * 20_000));
        }
        // Two seconds of speech, one of silence.
        let p = if number % 150 < 100 { 0.9 } else { 0.05 };
        black_box(audio_input.on_probability(p));
        black_box(audio_input.take_level());
    });
}

fn bench_vad(c: &mut Criterion<CpuTime>) {
    let samples: Vec<f32> = recording::utterances()
        .concat()
        .into_iter()
        .map(|sample| f32::from(sample) / 32_768.0)
        .collect();
    let windows = samples.as_chunks::<WINDOW>().0;
    let network = vad_network();
    for (name, streams) in
        [("detector: one window alone", 1), ("detector: sixteen windows together", VAD_BATCH_SIZE)]
    {
        let mut silero = BatchedVad::new(Arc::clone(&network));
        let mut states = vec![NetworkState::default(); streams];
        let mut probabilities = vec![0.0; streams];
        let mut number = 0;
        let mut infer = || {
            let mut states: Vec<&mut NetworkState> = states.iter_mut().collect();
            // Each stream is at a different position of the recording.
            let given: Vec<&[f32; WINDOW]> = (0..streams)
                .map(|stream| &windows[(number + stream * 31) % windows.len()])
                .collect();
            number += 1;
            silero.infer(&mut states, &given, &mut probabilities);
            probabilities[0]
        };
        let loudest = (0..30).map(|_| infer()).fold(0.0, f32::max);
        assert!(loudest > 0.5, "the recording contains no speech: {loudest}");
        bench_each(c, name, &mut infer);
    }
}
