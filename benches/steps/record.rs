//! The recording of a call: on the media thread, on the thread that writes to the disk, and in the
//! child process after the call.
//!
//! Both voices speak without a pause, and the lips move in every picture. A real call, whose
//! voices alternate, costs less.

use std::hint::black_box;
use std::io::{Cursor, sink};
use std::sync::Arc;
use std::time::Duration;

use benches::cpu::{self, CpuTime, bench, bench_with_count};
use bytes::Bytes;
use conversation::id::ConversationId;
use conversation::time::Time;
use criterion::Criterion;
use engine::hear::jitter::{Frame as AudioFrame, FrameKind};
use engine::recorder::{Recorder, RecorderMessage};
use engine::show::Avatars;
use engine::{CallRecording, channel, clock};
use recording::capture::CaptureWriter;
use recording::{Channels, Frame, Packet, Size, Track, delivery};

use crate::show;

/// Interval of the ticks of a media thread.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_SECOND: u32 = 100;
/// A voice has a packet in every other tick, and the video a frame in every fourth one.
const AUDIO_TICKS: u32 = 2;
const VIDEO_TICKS: u32 = 4;
const PACKETS_PER_SECOND: u64 = 50 + 50 + 25;
const FRAME_SAMPLES: u32 = 960;
/// Seconds of the longest recording that is delivered at once. The instructions of so many are
/// counted, because Valgrind needs a second for each.
const DELIVERED_SECONDS: u64 = 20;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let call = RecordedCall::new();
    bench(c, "record: a second of a call into the channel", |count| call.time_hand_over(count));
    bench(c, "record: a second of a call into its file", |count| call.time_capture(count));
    for (name, channels) in [
        ("deliver: a second of a call, mixed", Channels::Mixed),
        ("deliver: a second of a call, split", Channels::Split),
    ] {
        let work = |count| call.time_delivery(channels, count);
        bench_with_count(c, name, DELIVERED_SECONDS, work);
    }
}

/// What a call records. Voices and video repeat.
struct RecordedCall {
    size: Size,
    key: (Frame, Bytes),
    pictures: Vec<(Frame, Bytes)>,
    voice: Vec<Bytes>,
}

impl RecordedCall {
    fn new() -> Self {
        let avatars = Avatars::built_in().expect("the built-in avatars");
        let set = Arc::clone(&avatars.as_slice()[0].pose_set);
        let mut key_face = engine::show::AvatarAnimator::new(Arc::clone(&set), 25, 1);
        let key = key_face.next_frame(Time::ZERO, None).expect("a key frame");
        let key = key_face.finest(&key);
        let mut face = show::speaking_face(&set);
        let pictures = (1..=show::FRAME_COUNT).filter_map(|number| {
            let time = Time::from_micros(number * show::FRAME_INTERVAL);
            let at = (number * show::FRAME_INTERVAL) as f32 / 1e6;
            let frame = face.next_frame(time, Some((show::SEGMENT, at)))?;
            Some(face.finest(&frame))
        });
        let pictures: Vec<_> = pictures.collect();
        assert!(pictures.len() as u64 > show::FRAME_COUNT / 2, "the lips move");
        let voice = benches::recording::opus_packets().into_iter().map(Bytes::from).collect();
        Self { size: face.size(), key, pictures, voice }
    }

    fn voice_packet(&self, tick: u32) -> &Bytes {
        &self.voice[(tick / AUDIO_TICKS) as usize % self.voice.len()]
    }

    fn video_frame(&self, tick: u32) -> &(Frame, Bytes) {
        match tick / VIDEO_TICKS {
            0 => &self.key,
            number => &self.pictures[number as usize % self.pictures.len()],
        }
    }

    /// The packets of a second, in the order of their times.
    fn packets(&self, second: u64) -> Vec<Packet> {
        let first = second as u32 * TICKS_PER_SECOND;
        (first..first + TICKS_PER_SECOND)
            .flat_map(|tick| {
                let packet =
                    |track, data: &Bytes| Packet { at: TICK * tick, track, data: data.clone() };
                let (frame, picture) = self.video_frame(tick);
                let video = tick.is_multiple_of(VIDEO_TICKS);
                let audio = tick.is_multiple_of(AUDIO_TICKS);
                let voice = |track| audio.then(|| packet(track, self.voice_packet(tick)));
                [
                    voice(Track::Agent),
                    voice(Track::User),
                    video.then(|| packet(Track::Video(*frame), picture)),
                ]
                .into_iter()
                .flatten()
            })
            .collect()
    }

    /// CPU time of the media thread for this many seconds of a call.
    fn time_hand_over(&self, seconds: u64) -> Duration {
        let (sender, receiver) = channel::open(&channel::RECORDER, None);
        let recorder = Recorder::with_sender(sender);
        let start = clock::now();
        let mut recording = CallRecording::new(recorder, ConversationId(1), Some(self.size));
        let (mut total, mut received) = (Duration::ZERO, 0);
        for second in 0..seconds {
            let first = second as u32 * TICKS_PER_SECOND;
            total += cpu::measure(|| {
                for tick in first..first + TICKS_PER_SECOND {
                    let at = TICK * tick;
                    if tick.is_multiple_of(AUDIO_TICKS) {
                        let packet = self.voice_packet(tick);
                        recording.push_agent(at, packet);
                        let frame = AudioFrame {
                            timestamp: u64::from(tick) * u64::from(FRAME_SAMPLES / AUDIO_TICKS),
                            samples: FRAME_SAMPLES,
                            end_time: start + at + TICK * AUDIO_TICKS,
                            kind: FrameKind::Silence,
                        };
                        recording.push_user(start, &frame, packet);
                    }
                    if tick.is_multiple_of(VIDEO_TICKS) {
                        let (frame, picture) = self.video_frame(tick);
                        recording.push_video(at, *frame, picture.clone());
                    }
                    black_box(recording.poll(at)).expect("the channel has space");
                }
            });
            received += count_packets(receiver.try_iter());
        }
        drop(recording);
        received += count_packets(receiver.try_iter());
        assert_eq!(received, seconds * PACKETS_PER_SECOND, "every packet arrives");
        total
    }

    /// CPU time of the recorder's thread for this many seconds of a call, without system calls.
    fn time_capture(&self, seconds: u64) -> Duration {
        let mut writer = CaptureWriter::new(sink(), Some(self.size)).expect("a header");
        let mut total = Duration::ZERO;
        for second in 0..seconds {
            let packets = self.packets(second);
            total += cpu::measure(|| {
                packets.into_iter().try_for_each(|packet| writer.push(packet)).expect("a cluster");
                writer.flush().expect("a cluster");
            });
        }
        assert!(writer.bytes() > seconds * PACKETS_PER_SECOND);
        total
    }

    /// CPU time of the delivery of this many seconds.
    fn time_delivery(&self, channels: Channels, mut seconds: u64) -> Duration {
        let mut total = Duration::ZERO;
        while seconds > 0 {
            let part = seconds.min(DELIVERED_SECONDS);
            seconds -= part;
            let mut capture = Vec::new();
            let mut writer = CaptureWriter::new(&mut capture, Some(self.size)).expect("a header");
            for packet in (0..part).flat_map(|second| self.packets(second)) {
                writer.push(packet).expect("a cluster");
            }
            writer.flush().expect("a cluster");
            drop(writer);
            let mut out = Cursor::new(Vec::with_capacity(2 * capture.len()));
            let mut duration = Duration::ZERO;
            total += cpu::measure(|| {
                let written = delivery::write(&capture[..], &mut out, channels, |_| {});
                duration = written.expect("a recording").duration;
            });
            assert!(duration.abs_diff(Duration::from_secs(part)) < Duration::from_millis(100));
        }
        total
    }
}

fn count_packets(messages: impl Iterator<Item = RecorderMessage>) -> u64 {
    let packets = messages.map(|message| match message {
        RecorderMessage::Packets(_, packets) => packets.len() as u64,
        _ => 0,
    });
    packets.sum()
}
