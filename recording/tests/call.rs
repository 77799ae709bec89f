//! A recorded call in virtual time: poses of the built-in avatar, and both voices.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::Time;
use engine::show::{AvatarAnimator, Avatars};
use models::tts::Phone;
use opus::{Application, Bitrate, Channels, Encoder};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use recording::capture::CaptureWriter;
use recording::{Packet, Track};

/// Duration of an Opus packet in ms.
const STEP: u64 = 20;
/// A turn of the agent and one of the user, in steps.
const TURNS: u64 = 600;
/// The agent speaks up to this step, and the user from [`USER_STARTS`] on.
const AGENT_STOPS: u64 = 280;
const USER_STARTS: u64 = 320;
/// In every third turn the user interrupts the agent, this many steps earlier.
const BARGE_IN: u64 = 100;
/// The network delays a packet of the user by this many steps.
const USER_DELAY: std::ops::Range<u64> = 2..6;
const FRAME_RATE: u32 = 25;
const SEED: u64 = 25;

/// Where a cluster ends.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Size of the file up to the end of the cluster.
    pub bytes: usize,
    /// Number of packets up to the end of the cluster.
    pub packets: usize,
    /// End of the last of these packets.
    pub end: Duration,
}

/// The file of a call.
pub struct RecordedCall {
    /// Its bytes.
    pub file: Vec<u8>,
    /// Size of the header.
    pub header: usize,
    /// Its clusters.
    pub clusters: Vec<Cluster>,
    /// Its packets in the order in which they were recorded: their track and time.
    pub packets: Vec<(Track, Duration)>,
}

/// Remembers where each write ends.
#[derive(Default)]
struct Writes {
    file: Vec<u8>,
    ends: Vec<usize>,
}

impl Write for &mut Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.extend_from_slice(bytes);
        self.ends.push(self.file.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records a call.
#[must_use]
pub fn record(duration: Duration) -> RecordedCall {
    let steps = duration.as_millis() as u64 / STEP;
    let avatars = Avatars::built_in().unwrap();
    let pose_set = Arc::clone(&avatars.as_slice()[0].pose_set);
    let mut animator = AvatarAnimator::new(pose_set, FRAME_RATE, 5);
    let mut writes = Writes::default();
    let mut writer = CaptureWriter::new(&mut writes, Some(animator.size())).unwrap();
    let header = writer.bytes() as usize;
    let mut packets: Vec<(Track, Duration)> = Vec::new();
    let mut clusters = Vec::new();
    let mut end = Duration::ZERO;
    let mut push = |packet: Packet| {
        let (before, at, track) = (writer.bytes(), packet.at, packet.track);
        writer.push(packet).unwrap();
        if writer.bytes() > before {
            clusters.push(Cluster { bytes: writer.bytes() as usize, packets: packets.len(), end });
        }
        packets.push((track, at));
        end = end.max(at + Duration::from_millis(if is_video(track) { 40 } else { STEP }));
    };
    let voices = [voice(150.0, 1), voice(210.0, 2)];
    let mut random = StdRng::seed_from_u64(SEED);
    // Packets of the user on their way, in the order of their times.
    let mut delayed: VecDeque<(u64, Packet)> = VecDeque::new();
    for step in 0..steps {
        let (turn, of_turn) = (step / TURNS, step % TURNS);
        let barge_in = if turn % 3 == 2 { BARGE_IN } else { 0 };
        let at = Duration::from_millis(step * STEP);
        let speaks = [of_turn < AGENT_STOPS - barge_in, of_turn >= USER_STARTS - 2 * barge_in];
        let [agent, user] = [0, 1].map(|n| voices[n].packet(step, speaks[n]));
        push(Packet { at, track: Track::Agent, data: agent });
        let arrival = step + random.random_range(USER_DELAY);
        delayed.push_back((arrival, Packet { at, track: Track::User, data: user }));
        while let Some((_, packet)) = delayed.pop_front_if(|(arrival, _)| *arrival <= step) {
            push(packet);
        }
        if step % 2 == 0 {
            if of_turn == 0 {
                animator.set_state(AgentState::Speaking, false);
                animator.add_phones(SegmentId(turn as u32), &phones());
            } else if !speaks[0] {
                animator.set_state(AgentState::Listening, false);
            }
            let seconds = of_turn as f32 * STEP as f32 / 1_000.0;
            let position = speaks[0].then_some((SegmentId(turn as u32), seconds));
            let now = Time::from_micros(step * STEP * 1_000);
            if let Some(frame) = animator.next_frame(now, position) {
                let (frame, data) = animator.finest(&frame);
                push(Packet { at, track: Track::Video(frame), data });
            }
        }
    }
    writer.flush().unwrap();
    let bytes = writer.bytes() as usize;
    clusters.push(Cluster { bytes, packets: packets.len(), end });
    assert_eq!(writes.ends.len(), clusters.len() + 1, "a write is the header or a cluster");
    RecordedCall { file: writes.file, header, clusters, packets }
}

/// Whether a packet is a frame of the video.
#[must_use]
pub fn is_video(track: Track) -> bool {
    matches!(track, Track::Video(_))
}

/// The phones of a turn of the agent.
fn phones() -> Vec<Phone> {
    let names = ["aa", "m", "iy", "ow", "f", "eh", "l", "s"];
    let count = AGENT_STOPS * STEP / 100;
    let phone = |n: u64| Phone::new(names[n as usize % 8], n as f32 * 0.1);
    (1..=count).map(phone).collect()
}

/// Encoded speech and silence.
struct Voice {
    speech: Vec<Bytes>,
    silence: Bytes,
}

impl Voice {
    /// The packet of a step. The speech repeats after some seconds.
    fn packet(&self, step: u64, speaks: bool) -> Bytes {
        let packet = &self.speech[step as usize % self.speech.len()];
        if speaks { packet.clone() } else { self.silence.clone() }
    }
}

/// Syllables of harmonics of `pitch` and noise, encoded as in calls.
fn voice(pitch: f64, seed: u64) -> Voice {
    let mut encoder = Encoder::new(48_000, Channels::Mono, Application::Voip).unwrap();
    encoder.set_bitrate(Bitrate::Bits(40_000)).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut encode = |loudness: f64, n: usize| {
        let frame: Vec<i16> = (0..960)
            .map(|i| {
                let time = (n * 960 + i) as f64 / 48_000.0;
                let syllable = (time * 4.0 * std::f64::consts::PI).sin().powi(2);
                let harmonics: f64 = (1..12)
                    .map(|k| {
                        let k = f64::from(k);
                        (time * pitch * k * std::f64::consts::TAU).sin() / k
                    })
                    .sum();
                let noise = random.random_range(-0.3..0.3);
                ((harmonics + noise) * syllable * loudness) as i16
            })
            .collect();
        Bytes::from(encoder.encode_vec(&frame, 1_275).unwrap())
    };
    let speech = (0..200).map(|n| encode(6_000.0, n)).collect();
    let silence = (0..20).map(|n| encode(0.0, n)).last().unwrap();
    Voice { speech, silence }
}
