//! Whole videos, with the voices of flite, and Hibari's if it is installed.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use conversation::direction::Expression;
use conversation::script;
use engine::show::Avatars;
use models::face::Mouth;
use models::film::{SpoolRecord, SpoolWriter};
use models::tts::{Word, hibari};
use sha2::{Digest as _, Sha256};

use super::*;

const TEXT: &str = "Hello, and welcome! [glad] My name is Robin, and I am happy to show you around. \
                    [pause 1.5] [nod] Do you hear the bumble bee? It moves five small feet.";
/// Maximum distance in seconds between a closure of the lips and its phone, as in calls.
const CLOSURE_TOLERANCE: f64 = 0.04;

fn set(id: &str) -> Arc<PoseSet> {
    Arc::clone(&Avatars::built_in().unwrap().find(id).unwrap().pose_set)
}

/// A voice that speaks repeatably needs the process for itself.
fn voice(text: &str, name: &str) -> VoiceSource {
    let folder = models::paths::models_dir(None);
    VoiceSource::new(script::parse(text), "", &[name], Vec::new(), &folder).unwrap()
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn film(set: &Arc<PoseSet>, speech: &mut dyn SpeechSource, seed: u64) -> (Vec<u8>, Rendered) {
    let mut out = Cursor::new(Vec::new());
    let options = Options { frame_rate: 25, seed };
    let mut last = 0.0;
    let mut report = |progress: f32| {
        assert!(progress >= last);
        last = progress;
    };
    let rendered = render(Arc::clone(set), speech, &options, &mut out, None, &mut report);
    let rendered = rendered.unwrap();
    assert!((last - 1.0).abs() < 1e-6);
    (out.into_inner(), rendered)
}

/// Segments that were spoken before.
struct Recorded(std::vec::IntoIter<Spoken>);

impl SpeechSource for Recorded {
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error> {
        Ok(self.0.next())
    }

    fn done(&self) -> f32 {
        0.0
    }

    fn tail(&self) -> Duration {
        Duration::ZERO
    }
}

fn record(mut source: impl SpeechSource) -> Vec<Spoken> {
    std::iter::from_fn(|| source.next_segment().unwrap()).collect()
}

fn replay(segments: Vec<Spoken>) -> Recorded {
    Recorded(segments.into_iter())
}

/// The times in ms and the data of the frames of a video.
fn frames(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    const CLUSTER: u64 = 0x1f43_b675;
    const CONTAINERS: [u64; 2] = [0x1853_8067, CLUSTER];
    let (mut at, mut cluster, mut found) = (0, 0, Vec::new());
    let number = |at: &mut usize, keeps_marker: bool| {
        let first = file[*at];
        let length = first.leading_zeros() as usize + 1;
        let bytes = &file[*at..*at + length];
        *at += length;
        let whole = bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        if keeps_marker { whole } else { whole & ((1 << (7 * length)) - 1) }
    };
    while at < file.len() {
        let (id, size) = (number(&mut at, true), number(&mut at, false) as usize);
        if CONTAINERS.contains(&id) {
            continue;
        }
        let content = &file[at..at + size];
        at += size;
        match id {
            0xe7 => cluster = content.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            0xa3 if content[0] == 0x83 && content[3] & 0x08 == 0 => {
                let time = u64::from(u16::from_be_bytes([content[1], content[2]]));
                found.push((cluster + time, content[4..].to_vec()));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn equal_requests_give_equal_bytes() {
    let _alone = alone();
    let set = set("martin");
    let mut voices = vec!["rms"];
    if hibari::check_installed(&models::paths::models_dir(None)).is_ok() {
        voices.push("heart");
    }
    for name in voices {
        let digest = |(file, _): (Vec<u8>, Rendered)| Sha256::digest(file);
        let first = digest(film(&set, &mut voice(TEXT, name), 7));
        // Other speech before it changes nothing.
        record(voice("Something else is said first.", "awb"));
        assert_eq!(digest(film(&set, &mut voice(TEXT, name), 7)), first, "{name}");
        assert_ne!(digest(film(&set, &mut voice(TEXT, name), 8)), first, "{name}: another seed");
    }
}

#[test]
fn the_lips_are_shut_where_the_sound_needs_it() {
    let _alone = alone();
    let set = set("clara");
    let manifest = set.manifest();
    let mouths: HashMap<Vec<u8>, Mouth> = manifest
        .frames
        .iter()
        .map(|(id, _)| {
            let data = set.frame(set.frame_index(*id), 0).to_vec();
            (data, manifest.mouths[usize::from(id.mouth)])
        })
        .collect();
    let text = "Hello, my people. Pepper makes a fine soup.\n\nBob moved the big blue boat, maybe. \
                Five brave people came from far away.";
    let segments = record(voice(text, "rms"));
    assert_eq!(segments.len(), 4);
    let (file, _) = film(&set, &mut replay(segments.clone()), 3);
    let shut: Vec<f64> = frames(&file)
        .into_iter()
        .filter(|(_, data)| {
            let mouth = mouths.get(data).copied().unwrap_or_default();
            mouth.press > 0.7 || mouth.tuck > 0.7
        })
        .map(|(time, _)| time as f64 / 1_000.0 + 0.02)
        .collect();
    let (mut start, mut count) = (0.4, 0);
    for segment in &segments {
        start += segment.gap.as_secs_f64();
        let mut begin = 0.0;
        for phone in &segment.phones {
            let end = f64::from(phone.end);
            if ["p", "b", "m", "f", "v"].contains(&&*phone.name) {
                let range = start + begin - CLOSURE_TOLERANCE..=start + end + CLOSURE_TOLERANCE;
                let is_shown = shut.iter().any(|middle| range.contains(middle));
                assert!(is_shown, "{} at {range:?} in {:?}", phone.name, segment.text);
                count += 1;
            }
            begin = end;
        }
        start += segment.samples.len() as f64 / 48_000.0;
    }
    assert!(count > 20, "{count}");
}

#[test]
fn a_video_is_as_long_as_its_speech_and_its_pauses() {
    let _alone = alone();
    let segments = record(voice("[pause 2] Yes. [pause 3] No.\n\nWell.", "rms"));
    let spoken: usize = segments.iter().map(|segment| segment.samples.len()).sum();
    let mut captions = Captions::default();
    let options = Options { frame_rate: 30, seed: 1 };
    let out = Cursor::new(Vec::new());
    let mut speech = replay(segments);
    let set = set("theo");
    let rendered =
        render(set, &mut speech, &options, out, Some(&mut captions), &mut |_| {}).unwrap();
    let expected = 0.4 + 2.0 + 3.0 + 0.8 + 0.8 + spoken as f64 / 48_000.0;
    let seconds = rendered.duration.as_secs_f64();
    assert!((seconds - expected).abs() < 0.04, "{seconds} {expected}");
    assert_eq!(rendered.size, recording::Size { width: 512, height: 512 });
    let file = captions.to_vtt();
    assert!(file.starts_with("WEBVTT\n\n00:00:02.4"), "{file}");
    assert_eq!(file.matches(" --> ").count(), 3, "{file}");
}

#[test]
fn a_face_gets_time_for_the_expression_of_a_tag() {
    let segment = |expression, is_tagged| Spoken {
        shown_as: Manner { expression, ..Manner::default() },
        is_tagged,
        samples: vec![0; 48_000],
        phones: vec![Phone::new("pau", 1.0)],
        ..Spoken::default()
    };
    let set = set("clara");
    let length = |is_tagged| {
        let glad = segment(Expression::Glad, is_tagged);
        let segments = vec![segment(Expression::Calm, false), glad.clone(), glad];
        film(&set, &mut replay(segments), 1).1.duration.as_millis()
    };
    let (with_tag, without) = (length(true), length(false));
    assert_eq!(without, 4_200);
    let added = with_tag - without;
    assert!((40..=360).contains(&added), "{added}: once, not before the third segment");
}

#[test]
fn a_video_lasts_an_hour_at_the_longest() {
    let hour = Spoken { gap: Duration::from_secs(3_600), ..Spoken::default() };
    let out = Cursor::new(Vec::new());
    let options = Options { frame_rate: 10, seed: 1 };
    let mut speech = replay(vec![hour]);
    let failed = render(set("theo"), &mut speech, &options, out, None, &mut |_| {});
    let message = failed.unwrap_err().to_string();
    assert_eq!(message, "the video would last longer than 60 minutes");
}

#[test]
fn the_sound_of_a_hosted_voice_is_read_up_to_its_last_complete_segment() {
    let script = script::parse("One two. Three four.");
    let tone: Vec<i16> = (0..24_000).map(|n| ((n as f32 * 0.2).sin() * 8_000.0) as i16).collect();
    let spool = |pieces: usize| {
        let mut file = Vec::new();
        let mut writer = SpoolWriter::new(&mut file);
        for (n, words) in [["One", "two."], ["Three", "four."]].into_iter().enumerate() {
            writer.push(&SpoolRecord::Begin(n as u32)).unwrap();
            for piece in tone.chunks(pieces) {
                writer.push(&SpoolRecord::Audio(24_000, piece.to_vec())).unwrap();
            }
            let word = |(n, text): (usize, &str)| Word {
                text: text.into(),
                begin: None,
                end: (n + 1) as f64 / 2.0,
            };
            let words = words.into_iter().enumerate().map(word).collect();
            writer.push(&SpoolRecord::Words(words)).unwrap();
            writer.push(&SpoolRecord::End).unwrap();
        }
        file
    };
    let file = spool(24_000);
    let segments = record(SpoolSource::new(script.clone(), &file[..]).unwrap());
    assert_eq!(segments.len(), 2);
    assert!(segments.iter().all(|segment| segment.samples.len() == 48_000));
    assert!(segments.iter().all(|segment| !segment.phones.is_empty()));
    let other = spool(777);
    let in_pieces = record(SpoolSource::new(script.clone(), &other[..]).unwrap());
    assert!(segments == in_pieces, "the pieces of a vendor change nothing");
    let mut torn = SpoolSource::new(script, &file[..file.len() - 1]).unwrap();
    assert!(torn.next_segment().unwrap().is_some());
    let message = torn.next_segment().unwrap_err().to_string();
    assert_eq!(message, "the sound of the hosted voice is not complete");
}

/// Samples in blocks.
struct Blocks {
    samples: Vec<i16>,
    block: usize,
}

impl Pcm for Blocks {
    fn rate(&self) -> u32 {
        48_000
    }

    fn next_block(&mut self) -> Result<Option<Vec<i16>>, Error> {
        let count = self.block.min(self.samples.len());
        let rest = self.samples.split_off(count);
        let block = std::mem::replace(&mut self.samples, rest);
        Ok((!block.is_empty()).then_some(block))
    }

    fn is_incomplete(&self) -> bool {
        false
    }
}

#[test]
fn an_audio_file_is_cut_at_its_pauses_and_has_lips() {
    let _alone = alone();
    let spoken = record(voice("Mama made some soup. Papa saw a boat. We are far away.", "slt"));
    let mut samples = vec![0; 30_000];
    for (segment, pause) in spoken.iter().zip([24_000, 120_000, 20_000]) {
        samples.extend(&segment.samples);
        samples.extend(vec![0; pause]);
    }
    let segments =
        |block| record(AudioSource::new(Blocks { samples: samples.clone(), block }).unwrap());
    let found = segments(8_192);
    let all: Vec<i16> =
        found.iter().flat_map(|s| s.gap_samples.iter().chain(&s.samples)).copied().collect();
    assert!(all == samples, "each sample is heard once");
    assert!((3..=5).contains(&found.len()), "{} segments", found.len());
    let long: Vec<usize> =
        found.iter().map(|segment| segment.gap_samples.len()).filter(|n| *n > 57_000).collect();
    assert_eq!(long.len(), 1, "one long pause: {long:?}");
    for segment in found.iter().filter(|segment| !segment.samples.is_empty()) {
        let seconds = segment.samples.len() as f32 / 48_000.0;
        let end = segment.phones.last().unwrap().end;
        assert!((end - seconds).abs() < 0.05, "phones until {end} of {seconds}");
        assert!(segment.phones.is_sorted_by(|a, b| a.end <= b.end));
        assert!(segment.phones.iter().filter(|phone| phone.name != "pau").count() > 4);
    }
    assert!(found == segments(100), "blocks change nothing");
    let silence = Blocks { samples: vec![0; 96_000], block: 960 };
    assert_eq!(record(AudioSource::new(silence).unwrap()).len(), 1);
}

#[test]
fn the_poster_is_a_picture_of_the_avatar() {
    let set = set("mei");
    let picture = image::load_from_memory(&poster(&set)).unwrap();
    assert_eq!((picture.width(), picture.height()), (512, 512));
}
