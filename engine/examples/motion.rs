//! Measures how much avatars move and what their video costs. `motion [--rate FPS] [--seeds N]
//! [AVATAR…]` animates each avatar, decodes its frames with libvpx as a receiver does, and prints a
//! JSON object by avatar id, which `scripts/motion.py` compares with its limits. AVATAR is the id of
//! a built-in avatar or a file `NAME.poses`; without one, all built-in avatars are measured.
//!
//! Each seed gives three minutes: the agent speaks [`SCRIPT`] with the voice [`VOICE`] of flite,
//! listens to a user who speaks with pauses, and waits while nobody speaks. The displacement of the
//! crown is that of [`motion::Crown`], in pixels of a picture that is 512 high.
//!
//! - `moving_share`: share of the seconds of speech within which the crown moves by a pixel or more;
//!   smallest of the seeds
//! - `range`: largest distance between two displacements in a minute of speech; smallest of the seeds
//! - `jump`: largest distance between two consecutive pictures of speech; largest of the seeds
//! - `speech`, `listening`, `idle`: kbit/s on the wire without key frames; means of the seeds
//! - `busiest_second`: kbit/s of speech in the busiest second; largest of the seeds
//! - `set_bytes`: size of the pose set
#![allow(clippy::print_stdout)] // the program's output
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the program")]

#[path = "../tests/support/motion.rs"]
mod motion;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use conversation::event::AgentState;
use conversation::input::{Epoch, GenerationId, SegmentId};
use conversation::output::{SpeechSource, TtsRequest};
use conversation::time::{Position, Time};
use engine::show::{AvatarAnimator, Avatars};
use engine::speak::manners::{Manner, Manners};
use engine::transport::VideoFrame;
use models::Sink;
use models::face::PoseSet;
use models::face::vp8::Decoder;
use models::tts::{Event, Flite, Phone, Request, Tts, Word};
use serde_json::{Value, json};

const VOICE: &str = "rms";
/// Segments of speech with greetings, explanations, lists, questions, consent and refusal: a little
/// more than a minute.
const SCRIPT: [&str; 18] = [
    "Good morning, and welcome to the museum of clocks.",
    "My name is Robin, and I am happy to show you around.",
    "Would you like to see the old clocks first, or the workshop?",
    "Yes, of course.",
    "The oldest of them was built in sixteen seventy six, and five of its wheels are made of pear \
     wood.",
    "It runs for thirty hours, loses about a minute a day, and somebody winds it every morning.",
    "No, you must not touch it, I am sorry.",
    "The oil of the skin damages the brass, and repairs are very expensive.",
    "Next door you find three rooms with watches, music boxes and automatic figures.",
    "Do you hear the bird?",
    "It is moved by a bellows that is smaller than a thumb, and it sings a melody of twelve bars.",
    "Many visitors believe that it is a recording, but it is not.",
    "Exactly, the same mechanism turns its head and opens its beak.",
    "If you have more time, the workshop is open until four o'clock on weekdays.",
    "There you can watch how our people repair a pocket watch, piece by piece.",
    "That is a wonderful question, thank you.",
    "We do not know who built the figure by the window, and nobody has found a signature so far.",
    "What else may I tell you?",
];
/// Seconds of each activity that are measured.
const MEASURED_SECONDS: usize = 60;
/// Seconds of listening before them.
const LEAD_SECONDS: usize = 5;
/// A user who speaks: seconds of speech at the start of each period, and the period.
const USER_SPEECH_SECONDS: f32 = 6.0;
const USER_PERIOD_SECONDS: f32 = 8.0;

type BoxError = Box<dyn std::error::Error>;

fn main() -> Result<(), BoxError> {
    let (mut rate, mut seeds, mut names) = (25, 4, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u32, BoxError> {
            Ok(arguments.next().ok_or("a number is missing")?.parse()?)
        };
        match argument.as_str() {
            "--rate" => rate = number()?,
            "--seeds" => seeds = number()?,
            _ => names.push(argument),
        }
    }
    let script = Script::spoken()?;
    let measurements: BTreeMap<String, Value> = pose_sets(&names)?
        .into_iter()
        .map(|set| (set.manifest().id.clone(), measure(&set, &script, rate, u64::from(seeds))))
        .collect();
    println!("{}", serde_json::to_string_pretty(&measurements)?);
    Ok(())
}

fn pose_sets(names: &[String]) -> Result<Vec<Arc<PoseSet>>, BoxError> {
    let built_in = Avatars::built_in()?;
    if names.is_empty() {
        return Ok(built_in.as_slice().iter().map(|avatar| Arc::clone(&avatar.pose_set)).collect());
    }
    let set = |name: &String| match built_in.find(name) {
        Some(avatar) => Ok(Arc::clone(&avatar.pose_set)),
        None => Ok(Arc::new(PoseSet::parse(&Bytes::from(std::fs::read(name)?))?)),
    };
    names.iter().map(set).collect()
}

/// A segment of speech.
struct SpokenSegment {
    shown_as: Manner,
    phones: Vec<Phone>,
    words: Vec<(String, Position)>,
    /// Duration of its audio in seconds.
    duration: f32,
}

/// The segments of [`SCRIPT`].
struct Script(Vec<SpokenSegment>);

impl Script {
    /// What flite says, and when.
    fn spoken() -> Result<Self, BoxError> {
        let (flite, mut manners) = (Flite::start(1)?, Manners::default());
        let segments = (0..).zip(SCRIPT).map(|(number, text)| {
            let (sender, events) = mpsc::channel();
            let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
            let request = Request { text: text.into(), voice: VOICE.into(), ..Request::default() };
            let _handle = flite.speak(request, sink)?;
            let mut segment = SpokenSegment {
                shown_as: manners.manner_of(&tts_request(number, text)),
                phones: Vec::new(),
                words: Vec::new(),
                duration: 0.0,
            };
            for event in events {
                match event {
                    Event::Phones(phones) => segment.phones.extend(phones),
                    Event::Words(words) => {
                        let place = |w: Word| (w.text, Position::from_seconds(w.end));
                        segment.words.extend(words.into_iter().map(place));
                    }
                    Event::Audio { pcm, sample_rate } => {
                        segment.duration += pcm.len() as f32 / sample_rate as f32;
                    }
                    Event::End => break,
                    Event::Failed(error) => return Err(error.into()),
                    Event::Usage { .. }
                    | Event::Warning(_)
                    | Event::Provider(_)
                    | Event::ServedBy(_) => {}
                }
            }
            Ok(segment)
        });
        let script = Self(segments.collect::<Result<_, BoxError>>()?);
        assert!(script.start(script.0.len()) > MEASURED_SECONDS as f32, "a minute of speech");
        Ok(script)
    }

    /// Seconds of speech before a segment.
    fn start(&self, segment: usize) -> f32 {
        self.0[..segment].iter().map(|segment| segment.duration).sum()
    }

    /// The segment that is spoken after this many seconds.
    fn segment_at(&self, seconds: f32) -> usize {
        (0..self.0.len()).rfind(|segment| self.start(*segment) <= seconds).unwrap_or_default()
    }
}

/// The request for a segment of the script, which is one utterance.
fn tts_request(number: u32, text: &str) -> TtsRequest {
    let epoch = Epoch(0);
    let generation = GenerationId { epoch, index: 0 };
    TtsRequest {
        segment: SegmentId(number),
        epoch,
        text: text.into(),
        source: SpeechSource::Generation { generation, segment_index: number },
        use_fallback: false,
        expression: None,
        nod: false,
    }
}

/// What happens during a minute.
#[derive(Clone, Copy, PartialEq)]
enum Activity {
    /// The agent speaks.
    Speech,
    /// The user speaks.
    Listening,
    /// Nobody speaks.
    Idle,
}

/// A minute as a receiver sees it.
#[derive(Default)]
struct Minute {
    /// Displacement of the crown in each picture.
    displacements: Vec<[f32; 2]>,
    /// Bytes of each picture on the wire; 0 if the last picture stays. Without key frames.
    bytes: Vec<usize>,
}

impl Minute {
    fn mean_kilobits(&self) -> f64 {
        kilobits(&self.bytes) / MEASURED_SECONDS as f64
    }

    fn busiest_second(&self, rate: u32) -> f64 {
        self.bytes.windows(rate as usize).map(kilobits).fold(0.0, f64::max)
    }
}

fn kilobits(bytes: &[usize]) -> f64 {
    bytes.iter().sum::<usize>() as f64 * 8.0 / 1000.0
}

fn measure(set: &Arc<PoseSet>, script: &Script, rate: u32, seeds: u64) -> Value {
    let mut crown = motion::Crown::of_set(set);
    let mut minutes = |activity| -> Vec<Minute> {
        (0..seeds).map(|seed| play(set, script, activity, rate, seed, &mut crown)).collect()
    };
    let [speech, listening, idle] =
        [Activity::Speech, Activity::Listening, Activity::Idle].map(&mut minutes);
    let round =
        |value: f64, digits: i32| (value * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    let kilobits = |minutes: &[Minute]| {
        round(minutes.iter().map(Minute::mean_kilobits).sum::<f64>() / minutes.len() as f64, 1)
    };
    let of_each = |value: fn(&[[f32; 2]]) -> f32| {
        speech.iter().map(move |minute| f64::from(value(&minute.displacements)))
    };
    let share = speech
        .iter()
        .map(|minute| f64::from(motion::moving_share(&minute.displacements, rate as usize)))
        .fold(f64::INFINITY, f64::min);
    json!({
        "moving_share": round(share, 3),
        "range": round(of_each(motion::range).fold(f64::INFINITY, f64::min), 1),
        "jump": round(of_each(motion::largest_jump).fold(0.0, f64::max), 1),
        "speech": kilobits(&speech),
        "busiest_second": round(speech.iter().map(|m| m.busiest_second(rate)).fold(0.0, f64::max), 0),
        "listening": kilobits(&listening),
        "idle": kilobits(&idle),
        "set_bytes": set.to_bytes().len(),
    })
}

/// Animates a minute of an activity after [`LEAD_SECONDS`] of silence.
fn play(
    set: &Arc<PoseSet>,
    script: &Script,
    activity: Activity,
    rate: u32,
    seed: u64,
    crown: &mut motion::Crown,
) -> Minute {
    let mut animator = AvatarAnimator::new(Arc::clone(set), rate, seed);
    let size = animator.size();
    let mut decoder = Decoder::new(size.width as usize, size.height as usize).unwrap();
    let mut minute = Minute::default();
    let mut displacement = [0.0; 2];
    let mut known_segments = 0;
    let lead = LEAD_SECONDS * rate as usize;
    for n in 0..lead + MEASURED_SECONDS * rate as usize {
        let now = Time::from_micros(n as u64 * 1_000_000 / u64::from(rate));
        let seconds = n.checked_sub(lead).map(|n| n as f32 / rate as f32);
        let mut position = None;
        match (activity, seconds) {
            (Activity::Speech, Some(seconds)) => {
                let segment = script.segment_at(seconds);
                // The next segment is synthesized while one plays.
                while known_segments < (segment + 2).min(script.0.len()) {
                    let (id, next) = (SegmentId(known_segments as u32), &script.0[known_segments]);
                    animator.announce_segment(id, next.shown_as);
                    animator.add_phones(id, &next.phones);
                    animator.add_words(id, &next.words);
                    known_segments += 1;
                }
                animator.retain_segments(|id| id.0 as usize >= segment);
                animator.set_state(AgentState::Speaking, false);
                position = Some((SegmentId(segment as u32), seconds - script.start(segment)));
            }
            (Activity::Listening, Some(seconds)) => {
                animator.set_user_speaking(seconds % USER_PERIOD_SECONDS < USER_SPEECH_SECONDS);
            }
            _ => {}
        }
        let frame = animator.next_frame(now, position);
        // Only the motion of speech is measured.
        if let Some(frame) = frame.as_ref().filter(|_| activity == Activity::Speech) {
            displacement = crown.displacement(&decoder.decode(&frame.payload).unwrap());
        }
        if seconds.is_some() {
            let counted = frame.filter(|frame| !frame.is_key_frame);
            minute.bytes.push(counted.as_ref().map_or(0, wire_bytes));
            minute.displacements.push(displacement);
        }
    }
    minute
}

/// Size of a frame on the wire, in bytes, with the headers of its packets: UDP, IP, RTP with
/// extensions, the SRTP tag and the VP8 descriptor.
fn wire_bytes(frame: &VideoFrame) -> usize {
    const PACKET: usize = 1114;
    const HEADERS: usize = 64;
    frame.payload.len() + frame.payload.len().div_ceil(PACKET) * HEADERS
}
