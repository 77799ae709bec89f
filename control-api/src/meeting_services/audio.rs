//! The sockets over which services exchange the audio of a meeting: their messages, and the way from
//! chunks that arrive irregularly to the even pace of a call.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use super::{attendee, meetingbaas};

/// Duration of a message of the agent's audio. Services cut to this length.
const FRAMES_PER_SECOND: u32 = 10;
const FRAME: Duration = Duration::from_millis(100);
/// How much a meeting may not have heard yet when a further frame is sent.
const MAX_AHEAD: Duration = Duration::from_millis(90);
/// Audio that is collected before a voice is played, in ms. It covers the jitter of the network.
const CUSHION_MS: u32 = 60;
/// Audio of one voice that waits at most, in ms. Older audio is dropped: the delay must not grow.
const MAX_WAITING_MS: u32 = 500;
/// Level over which a voice counts as speech, RMS of full scale: -45 dBFS.
const SPEECH_LEVEL: f32 = 0.0056;
/// Number of silent blocks of 20 ms after which a voice has stopped.
const STOP_BLOCKS: u32 = 25;

/// A message of a service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AudioEvent {
    /// Samples of one voice, or of the mix of all if the id is empty.
    Samples { voice: String, samples: Vec<i16> },
    /// Someone started or stopped speaking.
    Speaker { name: String, is_speaking: bool },
}

/// How a service's socket transmits audio.
pub(crate) trait AudioCodec: Send + Sync {
    /// Sample rate of what the service sends, in Hz.
    fn input_rate(&self) -> u32;

    /// Sample rate of what the service expects, in Hz.
    fn output_rate(&self) -> u32;

    /// Reads a message. Messages that are not known are ignored.
    fn decode(&mut self, message: &Message) -> Vec<AudioEvent>;

    /// A message with 100 ms of the agent's audio.
    fn encode(&self, samples: &[i16]) -> Message;
}

/// The codec of a service's socket; `None` if the service has none.
pub(crate) fn codec(provider: &str) -> Option<Box<dyn AudioCodec>> {
    match provider {
        "attendee" => Some(Box::new(AttendeeCodec)),
        "meetingbaas" => Some(Box::new(meetingbaas::Codec)),
        _ => None,
    }
}

/// Samples of 16 bits, little-endian. An odd byte at the end is ignored.
pub(super) fn samples_of(bytes: &[u8]) -> Vec<i16> {
    bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

pub(super) fn bytes_of(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// Attendee: JSON with base64, one voice per participant.
struct AttendeeCodec;

/// Sample rate that Attendee does not raise by repeating samples, in Hz.
const ATTENDEE_OUTPUT_RATE: u32 = 24_000;

#[derive(Deserialize)]
struct AttendeeMessage {
    trigger: String,
    data: AttendeeAudio,
}

#[derive(Deserialize)]
struct AttendeeAudio {
    chunk: String,
    #[serde(default)]
    participant_uuid: String,
}

impl AudioCodec for AttendeeCodec {
    fn input_rate(&self) -> u32 {
        attendee::SOCKET_RATE
    }

    fn output_rate(&self) -> u32 {
        ATTENDEE_OUTPUT_RATE
    }

    fn decode(&mut self, message: &Message) -> Vec<AudioEvent> {
        let Message::Text(text) = message else { return Vec::new() };
        let Ok(message) = serde_json::from_str::<AttendeeMessage>(text) else { return Vec::new() };
        let is_audio =
            matches!(&*message.trigger, "realtime_audio.mixed" | "realtime_audio.per_participant");
        let bytes = STANDARD.decode(message.data.chunk).ok().filter(|_| is_audio);
        let Some(bytes) = bytes else { return Vec::new() };
        let voice = message.data.participant_uuid;
        vec![AudioEvent::Samples { voice, samples: samples_of(&bytes) }]
    }

    fn encode(&self, samples: &[i16]) -> Message {
        let message: Value = json!({
            "trigger": "realtime_audio.bot_output",
            "data": {
                "chunk": STANDARD.encode(bytes_of(samples)),
                "sample_rate": ATTENDEE_OUTPUT_RATE,
            },
        });
        Message::text(message.to_string())
    }
}

/// A voice, or the mix of all, from irregular chunks to blocks of 20 ms.
#[derive(Default)]
struct Voice {
    waiting: VecDeque<i16>,
    /// Whether the cushion is complete.
    is_playing: bool,
    /// Blocks since the last chunk.
    blocks_since_chunk: u32,
    is_speaking: bool,
    silent_blocks: u32,
}

/// The voices of a meeting, mixed at the pace of a call.
pub(crate) struct Mixer {
    /// Samples of 20 ms.
    block: usize,
    voices: BTreeMap<String, Voice>,
}

/// Maximum number of voices. A service sends those that are heard.
const MAX_VOICES: usize = 64;

impl Mixer {
    /// `rate`: sample rate, in Hz.
    pub(crate) fn new(rate: u32) -> Self {
        Self { block: rate as usize / 50, voices: BTreeMap::new() }
    }

    fn samples(&self, ms: u32) -> usize {
        self.block * ms as usize / 20
    }

    /// Takes a chunk of one voice.
    pub(crate) fn push(&mut self, voice: &str, samples: &[i16]) {
        let max = self.samples(MAX_WAITING_MS);
        if self.voices.len() >= MAX_VOICES && !self.voices.contains_key(voice) {
            // The voice of someone who has left, most likely.
            self.voices.retain(|_, known| !known.waiting.is_empty());
        }
        let voice = self.voices.entry(voice.to_owned()).or_default();
        voice.waiting.extend(samples);
        voice.blocks_since_chunk = 0;
        let excess = voice.waiting.len().saturating_sub(max);
        voice.waiting.drain(..excess);
    }

    /// Appends 20 ms of the mix to `mix`, and returns which voices started or stopped speaking. The
    /// mix of all has no speaker.
    pub(crate) fn mix(&mut self, mix: &mut Vec<i16>) -> Vec<(String, bool)> {
        let (block, cushion) = (self.block, self.samples(CUSHION_MS));
        let start = mix.len();
        mix.resize(start + block, 0);
        let mut changes = Vec::new();
        for (id, voice) in &mut self.voices {
            voice.blocks_since_chunk = voice.blocks_since_chunk.saturating_add(1);
            // The end of an utterance may be shorter than the cushion.
            let is_last = voice.blocks_since_chunk > CUSHION_MS / 20;
            voice.is_playing |= voice.waiting.len() >= cushion || is_last;
            let taken = if voice.is_playing { voice.waiting.len().min(block) } else { 0 };
            let mut energy = 0.0;
            for (mixed, sample) in mix[start..].iter_mut().zip(voice.waiting.drain(..taken)) {
                *mixed = mixed.saturating_add(sample);
                energy += f32::from(sample) * f32::from(sample);
            }
            voice.is_playing &= taken == block;
            let level = (energy / block as f32).sqrt() / f32::from(i16::MAX);
            let is_loud = level >= SPEECH_LEVEL;
            voice.silent_blocks = if is_loud { 0 } else { voice.silent_blocks.saturating_add(1) };
            let is_speaking = is_loud || (voice.is_speaking && voice.silent_blocks < STOP_BLOCKS);
            if is_speaking != voice.is_speaking && !id.is_empty() {
                changes.push((id.clone(), is_speaking));
            }
            voice.is_speaking = is_speaking;
        }
        changes
    }
}

/// The agent's audio, cut into messages of 100 ms, which leave in real time: what a service has
/// received cannot be recalled by an interruption.
pub(crate) struct Framer {
    frame: usize,
    waiting: Vec<i16>,
    frames: VecDeque<Vec<i16>>,
    /// When the meeting has heard what was sent.
    heard_until: Option<Instant>,
}

impl Framer {
    /// `rate`: sample rate, in Hz.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            frame: (rate / FRAMES_PER_SECOND) as usize,
            waiting: Vec::new(),
            frames: VecDeque::new(),
            heard_until: None,
        }
    }

    /// Takes what the agent said in the last 20 ms. When the agent stops, the last frame is filled
    /// with silence: services drop an incomplete one.
    pub(crate) fn push(&mut self, spoken: &[i16]) {
        self.waiting.extend_from_slice(spoken);
        if spoken.is_empty() && !self.waiting.is_empty() {
            self.waiting.resize(self.waiting.len().max(self.frame), 0);
        }
        while self.waiting.len() >= self.frame {
            self.frames.push_back(self.waiting.drain(..self.frame).collect());
        }
    }

    /// The next frame, if it is due. After a late tick, no more than [`MAX_AHEAD`] is sent at once.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Vec<i16>> {
        let start = self.heard_until.map_or(now, |until| until.max(now));
        if start > now + MAX_AHEAD {
            return None;
        }
        let frame = self.frames.pop_front()?;
        self.heard_until = Some(start + FRAME);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_100_ms_become_an_even_stream_despite_their_jitter() {
        let mut mixer = Mixer::new(16_000);
        let mut heard = Vec::new();
        // Chunks of 1600 samples are due every fifth block; some are 40 ms late.
        let arrivals = [0, 5, 12, 15, 20, 27, 30, 35];
        for block in 0..60 {
            let due = arrivals.iter().filter(|at| **at == block).count();
            for _ in 0..due {
                mixer.push("", &[1_000; 1_600]);
            }
            mixer.mix(&mut heard);
        }
        assert_eq!(heard.len(), 60 * 320);
        let spoken = heard.iter().filter(|sample| **sample == 1_000).count();
        assert_eq!(spoken, arrivals.len() * 1_600, "every sample is heard once");
        // Once a gap has occurred, the cushion covers the same jitter.
        let gaps = heard.windows(2).filter(|pair| pair[0] == 1_000 && pair[1] == 0).count();
        assert!(gaps <= 3, "{gaps} gaps");
    }

    #[test]
    fn a_burst_does_not_delay_what_follows() {
        let mut mixer = Mixer::new(16_000);
        mixer.push("", &[1; 16_000]);
        mixer.push("", &[2; 1_600]);
        let mut heard = Vec::new();
        for _ in 0..25 {
            mixer.mix(&mut heard);
        }
        assert_eq!(heard.iter().filter(|sample| **sample == 2).count(), 1_600);
        assert_eq!(heard.iter().filter(|sample| **sample == 1).count(), 8_000 - 1_600);
    }

    #[test]
    fn voices_are_mixed_and_their_speakers_are_reported() {
        let mut mixer = Mixer::new(16_000);
        let mut heard = Vec::new();
        for block in 0..100 {
            if block < 50 {
                mixer.push("maria", &[3_000; 320]);
            }
            if (25..50).contains(&block) {
                mixer.push("tom", &[i16::MAX; 320]);
            }
            let changes = mixer.mix(&mut heard);
            for (who, is_speaking) in changes {
                match (&*who, is_speaking) {
                    ("maria", true) => assert!(block < 5, "{block}"),
                    ("tom", true) => assert!((25..30).contains(&block), "{block}"),
                    (_, false) => assert!((70..80).contains(&block), "{block}"),
                    _ => panic!("{who}"),
                }
            }
        }
        assert!(heard.contains(&i16::MAX), "the sum is limited");
        assert!(heard[75 * 320..].iter().all(|sample| *sample == 0));
    }

    #[test]
    fn the_agent_s_audio_leaves_in_frames_of_100_ms_and_the_last_one_is_filled() {
        let (mut framer, now) = (Framer::new(24_000), Instant::now());
        let mut frames = Vec::new();
        for block in 0..9 {
            framer.push(if block < 7 { &[5; 480] } else { &[] });
            frames.extend(framer.pop(now + block * Duration::from_millis(20)));
        }
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [2_400, 2_400]);
        assert_eq!(frames[1].iter().filter(|sample| **sample == 5).count(), 960);
        framer.push(&[]);
        assert!(framer.pop(now + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn frames_leave_in_real_time_after_a_late_tick() {
        let (mut framer, now) = (Framer::new(24_000), Instant::now());
        framer.push(&[5; 12_000]);
        let sent = |framer: &mut Framer, ms: u64| {
            let at = now + Duration::from_millis(ms);
            std::iter::from_fn(|| framer.pop(at)).count()
        };
        assert_eq!(sent(&mut framer, 0), 1);
        assert_eq!(sent(&mut framer, 20), 1);
        assert_eq!(sent(&mut framer, 40), 0);
        assert_eq!(sent(&mut framer, 120), 1);
        assert_eq!(sent(&mut framer, 1_000), 1);
        assert_eq!(sent(&mut framer, 1_020), 1);
    }

    #[test]
    fn messages_of_attendee_are_read_and_written() {
        let mut codec = AttendeeCodec;
        let text = json!({"bot_id": "bot_1", "trigger": "realtime_audio.per_participant",
            "data": {"chunk": STANDARD.encode([1, 0, 0xff, 0xff, 9]), "sample_rate": 16_000,
                     "participant_uuid": "u", "timestamp_ms": 1}});
        let events = codec.decode(&Message::text(text.to_string()));
        let samples = vec![1, -1];
        assert_eq!(events, [AudioEvent::Samples { voice: "u".into(), samples }]);
        for text in ["", "{}", "[1]", r#"{"trigger":"x","data":{"chunk":""}}"#] {
            assert_eq!(codec.decode(&Message::text(text)), [], "{text}");
        }
        let Message::Text(text) = codec.encode(&[1, -1]) else { panic!() };
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sent["data"], json!({"chunk": "AQD//w==", "sample_rate": 24_000}));
    }
}
