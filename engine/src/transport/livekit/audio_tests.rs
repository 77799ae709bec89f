use std::f32::consts::TAU;

use opus::{Application, Channels, Encoder};

use super::*;

const PACKET_SAMPLES: usize = 960;

/// A person who sends a tone, or silence.
struct Sender {
    encoder: Encoder,
    mid: Mid,
    frequency: f32,
    sent: u64,
}

impl Sender {
    fn new(mid: &str, frequency: f32) -> Self {
        let encoder = Encoder::new(48_000, Channels::Mono, Application::Audio).unwrap();
        Self { encoder, mid: Mid::from(mid), frequency, sent: 0 }
    }

    fn send(&mut self, audio: &mut RoomAudio, now: Instant, peak: f32) {
        let start = self.sent as usize * PACKET_SAMPLES;
        let sample = |n: usize| {
            let phase = TAU * self.frequency * (start + n) as f32 / 48_000.0;
            (peak * phase.sin()) as i16
        };
        let pcm: Vec<i16> = (0..PACKET_SAMPLES).map(sample).collect();
        let mut packet = vec![0; 4_000];
        let length = self.encoder.encode(&pcm, &mut packet).unwrap();
        packet.truncate(length);
        audio.push(now, self.mid, self.sent, self.sent * 960 + 77, packet.into());
        self.sent += 1;
    }
}

fn tracks(count: usize) -> HashMap<Mid, String> {
    let one = |n: usize| (Mid::from(["1", "2", "3"][n]), format!("TR_{n}"));
    (0..count).map(one).collect()
}

/// Level of one frequency in `pcm`, 16 kHz, relative to full scale.
fn level_of(pcm: &[i16], frequency: f32) -> f32 {
    let (mut re, mut im) = (0.0, 0.0);
    for (n, sample) in pcm.iter().enumerate() {
        let phase = TAU * frequency * n as f32 / 16_000.0;
        re += f32::from(*sample) * phase.cos();
        im += f32::from(*sample) * phase.sin();
    }
    2.0 * re.hypot(im) / pcm.len() as f32
}

#[test]
fn one_voice_passes_unchanged() {
    let mut audio = RoomAudio::default();
    audio.assign(&tracks(1));
    let (mut sender, start) = (Sender::new("1", 440.0), crate::clock::now());
    let mut pcm = Vec::new();
    for n in 0..50_u32 {
        let now = start + BLOCK * n;
        sender.send(&mut audio, now, 8_000.0);
        while audio.pull(now, &mut pcm).is_some() {}
    }
    assert!(pcm.len() >= 48 * BLOCK_SAMPLES, "{} samples", pcm.len());
    let level = level_of(&pcm[pcm.len() / 2..], 440.0);
    assert!((level / 8_000.0 - 1.0).abs() < 0.1, "{level}");
    assert!(audio.take_reports().is_empty());
    assert_eq!(audio.active_track(), Some("TR_0"));
}

#[test]
fn the_only_voice_of_several_people_is_reported_in_the_unchanged_audio() {
    let mut audio = RoomAudio::default();
    audio.assign(&tracks(1));
    let (mut sender, start) = (Sender::new("1", 440.0), crate::clock::now());
    let mut pcm = Vec::new();
    // Speech from .5 s to 1.5 s. Somebody else comes at 1 s, and leaves at 3 s.
    for n in 0..250_u32 {
        let now = start + BLOCK * n;
        if n == 50 || n == 150 {
            audio.set_several_people(now, n == 50);
        }
        let speaks = (25..75).contains(&n) || (100..125).contains(&n) || n >= 200;
        sender.send(&mut audio, now, if speaks { 8_000.0 } else { 0.0 });
        while audio.pull(now, &mut pcm).is_some() {}
    }
    assert!(level_of(&pcm[10_000..20_000], 440.0) > 7_000.0, "the voice is heard in full");
    let reports: Vec<(bool, f64)> = audio
        .take_reports()
        .iter()
        .map(|report| (report.is_speaking, report.at.duration_since(start).as_secs_f64()))
        .collect();
    let expected = [(true, 1.0), (false, 1.5), (true, 2.0), (false, 2.5)];
    assert_eq!(reports.len(), expected.len(), "{reports:?}");
    for ((is_speaking, at), expected) in reports.iter().zip(expected) {
        assert!(*is_speaking == expected.0 && (at - expected.1).abs() < 0.1, "{reports:?}");
    }
}

#[test]
fn the_active_speaker_is_heard_in_full_and_others_lower() {
    let mut audio = RoomAudio::default();
    audio.assign(&tracks(2));
    audio.set_several_people(crate::clock::now(), true);
    let (mut maria, mut tom) = (Sender::new("1", 400.0), Sender::new("2", 1_000.0));
    let start = crate::clock::now();
    let mut pcm = Vec::new();
    // Maria begins. Tom joins in after 1 s, louder, and goes on when she has stopped after 2 s.
    for n in 0..200_u32 {
        let now = start + BLOCK * n;
        maria.send(&mut audio, now, if n < 100 { 6_000.0 } else { 0.0 });
        tom.send(&mut audio, now, if n >= 50 { 9_000.0 } else { 0.0 });
        audio.pull(now, &mut pcm);
    }
    let second = |at: usize| &pcm[at * 16_000 + 4_000..(at + 1) * 16_000 - 4_000];
    let both = (level_of(second(1), 400.0), level_of(second(1), 1_000.0));
    assert!(both.0 > 5_000.0, "Maria goes on in full: {both:?}");
    assert!((1_800.0..2_700.0).contains(&both.1), "Tom is 12 dB lower: {both:?}");
    let after = level_of(second(3), 1_000.0);
    assert!(after > 8_000.0, "Tom is the active speaker now: {after}");
    assert_eq!(audio.active_track(), Some("TR_1"));
    let reports = audio.take_reports();
    let names: Vec<(&str, bool)> =
        reports.iter().map(|report| (&*report.track, report.is_speaking)).collect();
    assert_eq!(names, [("TR_0", true), ("TR_1", true), ("TR_0", false)]);
    let stopped = reports[2].at.saturating_duration_since(start).as_secs_f64();
    assert!((1.9..2.2).contains(&stopped), "{stopped}");
}

#[test]
fn a_voice_that_goes_and_a_section_that_is_used_again_leave_nothing_behind() {
    let mut audio = RoomAudio::default();
    audio.assign(&tracks(2));
    let start = crate::clock::now();
    let mut sender = Sender::new("2", 440.0);
    let mut pcm = Vec::new();
    for n in 0..60_u32 {
        sender.send(&mut audio, start + BLOCK * n, 8_000.0);
        audio.pull(start + BLOCK * n, &mut pcm);
    }
    assert_eq!(audio.active_track(), Some("TR_1"));
    let again = HashMap::from([(Mid::from("1"), "TR_0".into()), (Mid::from("2"), "TR_9".into())]);
    audio.assign(&again);
    assert_eq!(audio.active_track(), None);
    audio.assign(&HashMap::new());
    assert!(audio.pull(start, &mut pcm).is_none() && audio.voices.is_empty());
}
