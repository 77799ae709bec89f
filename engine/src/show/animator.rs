//! Animates one avatar in one call: chooses a frame for every instant. It runs on the media thread,
//! takes no lock and allocates nothing per frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::{Position, Time};
use models::face::{Mouth, PoseSet};
use models::tts::Phone;
use recording::{Frame, Size};

use super::bandwidth_estimator::{BandwidthEstimator, SendMode};
use super::gesture_words::{GestureWord, GestureWords};
use super::head_motion::Speech;
use super::listener_cues::ListenerCues;
use super::mood::Feeling;
use super::motion::{Moment, Motion, PoseState};
use super::pose_cache::{PoseCache, Shown};
use super::rhythm::Rhythm;
use super::visemes::{VisemeTrack, lerp};
use crate::speak::manners::Manner;
use crate::transport::VideoFrame;

/// A frame shows the mouth of this many seconds after the frame's start: half a frame, because it
/// stays on screen, plus 20 ms. Browsers synchronize audio and video to some 30 ms, and early audio
/// is the most noticeable error (ITU-R BT.1359).
const LIP_LEAD_SECONDS: f32 = 0.04;
/// Maximum gap between two frames, so that a receiver does not mistake a still avatar for a frozen
/// stream. Browsers count a freeze if a frame comes 150 ms later than the mean. The next frame also
/// repairs a lost one, such as the eyes that open after a blink.
const MAX_FRAME_GAP: Duration = Duration::from_millis(100);
/// Maximum gap between still frames at low bandwidth.
const MAX_LOW_BANDWIDTH_GAP: Duration = Duration::from_millis(360);
/// While the avatar speaks, a frame is sent after this gap even if it is unchanged: a longer gap
/// would look like a network fault. It is just below the frame time at 25 fps, so that higher frame
/// rates cost no extra bandwidth where nothing changes.
const SPEAKING_FRAME_GAP: Duration = Duration::from_millis(38);
/// Speech is expected to start within this time after its phones arrive; after that it is
/// uncertain.
const SPEECH_START_TIMEOUT: Duration = Duration::from_millis(400);
/// Minimum interval between key frames. Earlier requests are answered by the key frame in flight,
/// except the first: behind an SFU it comes from a receiver that has missed the first key frame.
const MIN_KEY_FRAME_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of frames between two base-layer frames: libwebrtc forgets frames that it decoded
/// 8192 frames ago.
const MAX_BASE_LAYER_INTERVAL: u32 = 200;

/// The phones of a segment.
struct Track {
    segment: SegmentId,
    visemes: VisemeTrack,
    rhythm: Rhythm,
}

/// A segment that was requested from the TTS.
struct Announced {
    segment: SegmentId,
    shown_as: Manner,
    at: Time,
    has_played: bool,
}

/// The animation of one avatar in one call.
pub struct AvatarAnimator {
    poses: Arc<PoseCache>,
    frame_rate: u32,
    motion: Motion,
    state: AgentState,
    held: bool,
    bandwidth: BandwidthEstimator,
    user_speaking: bool,
    listener_cues: ListenerCues,
    tracks: Vec<Track>,
    gesture_words: Vec<(SegmentId, GestureWords)>,
    announced: Vec<Announced>,
    /// Speech is expected to start before this time, because its phones have arrived.
    speech_expected_until: Time,
    mouth: Mouth,
    /// The lips are between speech and silence; the next frame closes them.
    closing: bool,
    key_frame_requested: bool,
    key_frame_sent_at: Option<Time>,
    /// Whether a request was answered after the first key frame.
    has_repeated_key_frame: bool,
    /// The anchor that the receiver has: the last one since the last key frame, and since the one
    /// before.
    anchor: Option<u8>,
    anchor_before_key: Option<u8>,
    last_pose: Option<Shown>,
    last_sent_at: Time,
    frames_since_base: u32,
    now: Time,
}

impl AvatarAnimator {
    /// An animator of the given pose set. [`Self::next_frame`] must be called at `frame_rate`,
    /// frames per second. The same `seed` gives the same blinks.
    #[must_use]
    pub fn new(set: Arc<PoseSet>, frame_rate: u32, seed: u64) -> Self {
        Self::with_poses(Arc::new(PoseCache::new(set)), frame_rate, seed)
    }

    /// Like [`Self::new`], with a pose cache that calls share and that may have an upgrade.
    #[must_use]
    pub fn with_poses(cache: Arc<PoseCache>, frame_rate: u32, seed: u64) -> Self {
        let frame_rate = if frame_rate == 0 { 25 } else { frame_rate };
        Self {
            bandwidth: BandwidthEstimator::new(cache.mean_frame_bytes(), frame_rate),
            poses: cache,
            frame_rate,
            motion: Motion::new(seed),
            state: AgentState::Listening,
            held: false,
            user_speaking: false,
            listener_cues: ListenerCues::default(),
            tracks: Vec::with_capacity(8),
            gesture_words: Vec::with_capacity(8),
            announced: Vec::with_capacity(8),
            speech_expected_until: Time::ZERO,
            mouth: Mouth::default(),
            closing: false,
            key_frame_requested: true,
            has_repeated_key_frame: false,
            key_frame_sent_at: None,
            anchor: None,
            anchor_before_key: None,
            last_pose: None,
            last_sent_at: Time::ZERO,
            frames_since_base: 0,
            now: Time::ZERO,
        }
    }

    /// Requests a key frame: the receiver joined, or sent a PLI or FIR. The first frame is a key
    /// frame anyway.
    pub fn request_key_frame(&mut self) {
        self.key_frame_requested = true;
    }

    /// The last key frame of [`Self::next_frame`] was not sent, because the same one is in flight.
    /// An anchor sent after that one is still valid.
    pub fn on_key_frame_dropped(&mut self) {
        self.anchor = self.anchor_before_key;
    }

    /// Switches to the upgrade of the pose set, and returns whether there was one. Call it between
    /// two frames.
    ///
    /// The pose sets of one avatar have the same key frame and anchors. So the receiver needs
    /// nothing more, and the video continues with frames of the new set. If they differ
    /// nevertheless, they are sent again before any frame that depends on them.
    pub fn swap_pose_set(&mut self) -> bool {
        let Some(upgrade) = self.poses.upgrade() else { return false };
        let upgrade = Arc::clone(upgrade);
        if upgrade.key_frame() != self.poses.key_frame() {
            self.key_frame_requested = true;
            // The key frame is due at once: no frame of the new set may precede it.
            self.key_frame_sent_at = None;
        }
        let same = |anchor: u8| upgrade.find_anchor(self.poses.anchor_frame(anchor));
        self.anchor = self.anchor.and_then(same);
        self.anchor_before_key = self.anchor_before_key.and_then(same);
        self.bandwidth.set_required_bitrate(upgrade.mean_frame_bytes(), self.frame_rate);
        // Frame numbers are specific to a pose set.
        self.last_pose = None;
        self.motion.change_paths(self.poses.paths(), upgrade.paths());
        self.poses = upgrade;
        true
    }

    /// Sets the agent's state, and whether its speech is held. While held the mouth closes; the
    /// speech resumes at the same position.
    pub fn set_state(&mut self, state: AgentState, held: bool) {
        (self.state, self.held) = (state, held);
    }

    /// Sets whether the user speaks. A listening avatar nods now and then when the user pauses.
    pub fn set_user_speaking(&mut self, speaking: bool) {
        match (self.user_speaking, speaking) {
            (true, false) => self.motion.on_user_pause(self.now),
            (false, true) => self.motion.on_user_speech(),
            _ => {}
        }
        self.user_speaking = speaking;
    }

    /// The agent will greet the user. Call it before the first frame: the face smiles before the
    /// first word.
    pub fn expect_greeting(&mut self) {
        self.motion.expect_greeting();
    }

    /// Handles a transcript of what the user says, of the whole utterance so far. A listening avatar
    /// smiles at thanks, praise and laughter, and nods when a clause ends.
    pub fn hear(&mut self, text: &str, is_final: bool) {
        if let Some(cue) = self.listener_cues.on_transcript(text, is_final) {
            self.motion.on_cue(cue, self.now);
        }
    }

    /// Sets the receiver's bandwidth estimate, bits per second; 0 = unknown.
    pub fn set_bandwidth(&mut self, bps: u64) {
        self.bandwidth.on_estimate(self.now, bps);
    }

    /// Adds phones of a segment; they follow those already added.
    pub fn add_phones(&mut self, segment: SegmentId, phones: &[Phone]) {
        let known = self.tracks.iter().position(|track| track.segment == segment);
        let at = known.unwrap_or_else(|| {
            let (visemes, rhythm) = (VisemeTrack::default(), Rhythm::default());
            self.tracks.push(Track { segment, visemes, rhythm });
            self.speech_expected_until = self.now + SPEECH_START_TIMEOUT;
            self.tracks.len() - 1
        });
        let Track { visemes, rhythm, .. } = &mut self.tracks[at];
        visemes.extend(phones);
        rhythm.extend(visemes, phones);
    }

    /// A segment is requested from the TTS, and is shown in this manner. Call it in the order of the
    /// requests, before the segment's phones.
    pub fn announce_segment(&mut self, segment: SegmentId, shown_as: Manner) {
        self.announced.push(Announced { segment, shown_as, at: self.now, has_played: false });
    }

    /// The manner of a segment, unless it was removed.
    #[must_use]
    pub fn manner_of(&self, segment: SegmentId) -> Option<Manner> {
        let found = self.announced.iter().find(|known| known.segment == segment);
        found.map(|known| known.shown_as)
    }

    /// Adds words of a segment, as written, with the positions of their ends; they follow those
    /// already added. A word without text is a pause.
    pub fn add_words(&mut self, segment: SegmentId, words: &[(String, Position)]) {
        match self.gesture_words.iter_mut().find(|(id, _)| *id == segment) {
            Some((_, known)) => known.extend(words),
            None => {
                let mut found = GestureWords::default();
                found.extend(words);
                self.gesture_words.push((segment, found));
            }
        }
    }

    /// The words of a segment that a gesture accompanies.
    #[must_use]
    pub fn gesture_words(&self, segment: SegmentId) -> &[GestureWord] {
        words_of(&self.gesture_words, segment)
    }

    /// Removes the phones, words and manners of segments that will not play any more.
    pub fn retain_segments(&mut self, is_active: impl Fn(SegmentId) -> bool) {
        self.tracks.retain(|track| is_active(track.segment));
        self.gesture_words.retain(|(id, _)| is_active(*id));
        self.announced.retain(|known| is_active(known.segment));
    }

    /// Returns the frame for `now`, if one must be sent. Call it once per tick of
    /// [`super::FrameClock`]; `now` must not decrease.
    ///
    /// `position` is the segment that plays at this instant, and how many seconds of it have left
    /// for the network; `None` in silence. A segment without phones does not move the lips.
    pub fn next_frame(
        &mut self,
        now: Time,
        position: Option<(SegmentId, f32)>,
    ) -> Option<VideoFrame> {
        self.now = now;
        let playing = position.filter(|_| !self.held);
        self.update_lips(playing);
        let send_mode = self.bandwidth.send_mode(now);
        let pose_state = self.update_motion(now, playing, send_mode != SendMode::Full);
        let speaking = playing.is_some();
        // In most stances some mouths are not baked. Then the nearest one is shown.
        let lips = if pose_state.ready_to_speak { self.mouth } else { Mouth::default() };
        let shown = self.poses.nearest_frame(&pose_state, lips, speaking);

        let is_key_frame_due = self.key_frame_sent_at.is_none_or(|at| {
            !self.has_repeated_key_frame || now.since(at) >= MIN_KEY_FRAME_INTERVAL
        });
        if self.key_frame_requested && is_key_frame_due {
            self.key_frame_requested = false;
            self.has_repeated_key_frame = self.key_frame_sent_at.is_some();
            self.key_frame_sent_at = Some(now);
            self.anchor_before_key = self.anchor.take();
            self.last_sent_at = now;
            self.frames_since_base = 0;
            // The key frame shows rest; the next frame differs from it or is due anyway.
            self.last_pose = None;
            return Some(VideoFrame {
                payload: self.poses.key_frame().clone(),
                is_key_frame: true,
                base_layer: true,
            });
        }

        let since_last = now.since(self.last_sent_at);
        let changed = self.last_pose != Some(shown);
        let wanted = match send_mode {
            // Also between two sentences.
            SendMode::Full if speaking || (self.state == AgentState::Speaking && !self.held) => {
                changed || since_last >= SPEAKING_FRAME_GAP
            }
            SendMode::Full => changed || since_last + self.frame_interval() > MAX_FRAME_GAP,
            SendMode::ChangesOnly | SendMode::CoarseChanges => changed,
            // One and a half intervals select every second frame, despite rounding.
            SendMode::HalfRate => changed && since_last >= self.frame_interval() * 3 / 2,
        };
        if !wanted && since_last < MAX_LOW_BANDWIDTH_GAP {
            return None;
        }
        self.last_sent_at = now;
        if let Some(anchor) = shown.anchor.filter(|anchor| self.anchor != Some(*anchor)) {
            self.anchor = Some(anchor);
            self.frames_since_base = 0;
            // An anchor shows its head at rest, which precedes the requested pose anyway. A key
            // frame in between is the exception.
            self.last_pose = None;
            let payload = self.poses.anchor_frame(anchor).clone();
            self.bandwidth.on_sent(now, payload.len());
            return Some(VideoFrame { payload, is_key_frame: false, base_layer: true });
        }
        self.last_pose = Some(shown);
        self.frames_since_base += 1;
        let base_layer = self.frames_since_base >= MAX_BASE_LAYER_INTERVAL;
        if base_layer {
            self.frames_since_base = 0;
        }
        let level = usize::from(matches!(send_mode, SendMode::CoarseChanges | SendMode::HalfRate));
        let payload = self.poses.frame(shown.frame, level).clone();
        self.bandwidth.on_sent(now, payload.len());
        Some(VideoFrame { payload, is_key_frame: false, base_layer })
    }

    /// Size of the video.
    #[must_use]
    pub fn size(&self) -> Size {
        let manifest = self.poses.pose_set().manifest();
        Size { width: manifest.width, height: manifest.height }
    }

    /// The last frame of [`Self::next_frame`] at the best quality, and what depends on it.
    #[must_use]
    pub fn finest(&self, frame: &VideoFrame) -> (Frame, Bytes) {
        match self.last_pose {
            _ if frame.is_key_frame => (Frame::Key, frame.payload.clone()),
            Some(shown) => (Frame::Picture, self.poses.frame(shown.frame, 0).clone()),
            None => (Frame::Altref, frame.payload.clone()),
        }
    }

    /// Time between two calls of [`Self::next_frame`].
    fn frame_interval(&self) -> Duration {
        Duration::from_micros(1_000_000 / u64::from(self.frame_rate))
    }

    /// The pose of the face at `now`, but for the lips.
    fn update_motion(
        &mut self,
        now: Time,
        playing: Option<(SegmentId, f32)>,
        reduced: bool,
    ) -> PoseState {
        // Phones arrive slightly before their audio plays, which lets the head get ready for
        // speech.
        let about_to_speak = now < self.speech_expected_until && !self.user_speaking;
        let state =
            if playing.is_some() || about_to_speak { AgentState::Speaking } else { self.state };
        if let Some((segment, _)) = playing {
            let played = self.announced.iter_mut().find(|known| known.segment == segment);
            if let Some(played) = played {
                played.has_played = true;
            }
        }
        let requested = self.announced.iter().find(|known| !known.has_played);
        let speech = playing.map(|(segment, at)| {
            let n = self.tracks.iter().position(|track| track.segment == segment);
            let rhythm = |n: usize| self.tracks.get(n).map(|track| &track.rhythm);
            let announced = self.announced.iter().position(|known| known.segment == segment);
            let shown_as = |n: usize| self.announced.get(n).map(|known| known.shown_as);
            let feeling = |shown_as: Manner| Feeling::of(shown_as.expression);
            let own = announced.and_then(shown_as).unwrap_or_default();
            Speech {
                segment,
                at: at + LIP_LEAD_SECONDS,
                jaw: self.mouth.jaw,
                rhythm: n.and_then(rhythm),
                next_rhythm: n.and_then(|n| rhythm(n + 1)),
                gestures: words_of(&self.gesture_words, segment),
                shown_as: own,
                feeling: feeling(own),
                next_feeling: announced.and_then(|n| shown_as(n + 1)).map(feeling),
            }
        });
        let moment = Moment {
            now,
            paths: self.poses.paths(),
            state,
            held: self.held,
            user_speaking: self.user_speaking,
            speech,
            requested: requested.map(|known| (known.shown_as, known.at)),
            anchor: self.anchor,
            frame_seconds: 1.0 / self.frame_rate as f32,
            reduced,
        };
        self.motion.update(&moment)
    }

    /// The lips follow the audio. Without audio, they close within two frames.
    fn update_lips(&mut self, playing: Option<(SegmentId, f32)>) {
        let lips = playing.and_then(|(segment, at)| {
            let track = self.tracks.iter().find(|track| track.segment == segment)?;
            Some(track.visemes.mouth_at(at + LIP_LEAD_SECONDS))
        });
        match lips {
            Some(lips) => {
                self.mouth = lips;
                self.closing = true;
            }
            None if self.closing => {
                self.mouth = lerp(self.mouth, Mouth::default(), 0.6);
                self.closing = false;
            }
            None => self.mouth = Mouth::default(),
        }
    }
}

fn words_of(known: &[(SegmentId, GestureWords)], segment: SegmentId) -> &[GestureWord] {
    let found = known.iter().find(|(id, _)| *id == segment);
    found.map_or(&[], |(_, words)| words.as_slice())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use models::face::pose_set::{Anchor, Manifest};
    use models::face::{Look, PoseId, Stance};

    use super::*;
    use crate::show::visemes::Viseme;

    /// A pose set with all visemes as mouths, a blink, and one other head. The bytes of each frame
    /// are its number.
    fn test_pose_set() -> Arc<PoseSet> {
        let mouths: Vec<Mouth> = Viseme::ALL.iter().map(|v| v.mouth()).collect();
        let mut shut = Look::default();
        shut.eyes.lids = 1.0;
        let looks = vec![Look::default(), shut];
        let mut frames = Vec::new();
        for look in 0..2 {
            for mouth in 0..mouths.len() as u8 {
                frames.push((PoseId { look, mouth, ..PoseId::default() }, Vec::new()));
            }
        }
        frames.push((PoseId { stance: 1, ..PoseId::default() }, Vec::new()));
        // The coarse quality level has a third of the bytes.
        let bytes = (0..frames.len() as u8)
            .map(|i| [1000, 340].map(|length| Bytes::from(vec![i; length])).to_vec())
            .collect();
        let manifest = Manifest {
            width: 16,
            height: 16,
            quantizers: vec![8, 30, 50],
            anchors: vec![Anchor::of(vec![1])],
            stances: vec![
                Stance::default(),
                Stance { head: models::face::pose_plan::LISTENING_HEAD, ..Stance::default() },
            ],
            breaths: vec![0.0],
            looks,
            mouths,
            frames,
            ..Manifest::default()
        };
        let (key, anchors) = (Bytes::from_static(b"key"), vec![Bytes::from_static(b"anchor")]);
        Arc::new(PoseSet::new(manifest, key, anchors, bytes).unwrap())
    }

    fn phones(names: &[&str]) -> Vec<Phone> {
        names.iter().enumerate().map(|(i, n)| Phone::new(*n, 0.1 * (i + 1) as f32)).collect()
    }

    /// Number of the mouth that a frame shows, with or without a blink.
    fn mouth_of(frame: &VideoFrame) -> u8 {
        if frame.is_key_frame || frame.payload[0] >= 30 { 0 } else { frame.payload[0] % 15 }
    }

    const SEGMENT: SegmentId = SegmentId(1);

    fn at(frame: u64) -> Time {
        Time::from_micros(frame * 40_000)
    }

    #[test]
    fn the_first_frame_is_the_key_and_a_request_brings_another_but_no_storm() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        assert!(animator.next_frame(at(0), None).unwrap().is_key_frame);
        let mut keys = 0;
        for n in 1..=50 {
            animator.request_key_frame();
            keys += usize::from(animator.next_frame(at(n), None).is_some_and(|f| f.is_key_frame));
        }
        assert_eq!(keys, 8, "one at once, then one in each 280 ms");
    }

    #[test]
    fn lips_follow_the_phones_and_every_frame_is_sent_while_they_do() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.next_frame(at(0), None);
        animator.set_state(AgentState::Speaking, false);
        animator.add_phones(SEGMENT, &phones(&["aa", "aa", "p", "aa", "aa"]));
        let frames: Vec<VideoFrame> = (1..=12)
            .map(|n| {
                animator
                    .next_frame(at(n), Some((SEGMENT, (n - 1) as f32 * 0.04)))
                    .expect("every frame")
            })
            .collect();
        let mouths: Vec<u8> = frames.iter().map(mouth_of).collect();
        assert_eq!(mouths[2], 10, "aa: {mouths:?}");
        assert!(mouths[5..8].contains(&1), "p: {mouths:?}");
        assert_eq!(mouths[9], 10, "aa: {mouths:?}");
    }

    #[test]
    fn the_manner_of_a_segment_is_known_until_it_is_dropped() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        let (asks, other) = (Manner { is_question: true, ..Manner::default() }, SegmentId(2));
        animator.announce_segment(SEGMENT, asks);
        animator.announce_segment(other, Manner::default());
        assert_eq!(animator.manner_of(SEGMENT), Some(asks));
        animator.retain_segments(|segment| segment == other);
        let known = (animator.manner_of(SEGMENT), animator.manner_of(other));
        assert_eq!(known, (None, Some(Manner::default())));
    }

    #[test]
    fn gestures_are_known_of_each_segment_until_it_is_dropped() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        let word = |text: &str, end| vec![(text.to_owned(), Position::from_seconds(end))];
        let other = SegmentId(2);
        animator.add_words(SEGMENT, &word("Well,", 0.5));
        animator.add_words(other, &word("No,", 0.25));
        animator.add_words(SEGMENT, &word("yes.", 1.0));
        let starts = |animator: &AvatarAnimator, segment| -> Vec<f32> {
            animator.gesture_words(segment).iter().map(|word| word.start).collect()
        };
        assert_eq!((starts(&animator, SEGMENT), starts(&animator, other)), (vec![0.5], vec![0.0]));
        animator.retain_segments(|segment| segment == other);
        assert_eq!((starts(&animator, SEGMENT), starts(&animator, other)), (vec![], vec![0.0]));
    }

    #[test]
    fn on_hold_the_mouth_is_shut_within_two_frames_and_goes_on_in_place() {
        let speaking_face = || {
            let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
            animator.next_frame(at(0), None);
            animator.set_state(AgentState::Speaking, false);
            animator
                .add_phones(SEGMENT, &phones(&["aa", "aa", "iy", "s", "ow", "p", "aa", "f", "iy"]));
            animator
        };
        let mut uninterrupted = speaking_face();
        let all: Vec<u8> = (1..=20)
            .map(|n| {
                mouth_of(
                    &uninterrupted.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))).unwrap(),
                )
            })
            .collect();
        assert!(all.iter().collect::<std::collections::HashSet<_>>().len() > 4, "{all:?}");
        for held_at in [3, 7, 12] {
            let mut animator = speaking_face();
            let show = |animator: &mut AvatarAnimator, n: u64, of: usize| {
                mouth_of(
                    &animator.next_frame(at(n), Some((SEGMENT, (of + 1) as f32 * 0.04))).unwrap(),
                )
            };
            let mut seen: Vec<u8> =
                (0..held_at).map(|of| show(&mut animator, of as u64 + 1, of)).collect();
            // While held, the state changes to listening, but the head stays in place.
            animator.set_state(AgentState::Listening, true);
            let now = held_at as u64 + 1;
            let shuts = [now, now + 1]
                .map(|n| animator.next_frame(at(n), Some((SEGMENT, held_at as f32 * 0.04))));
            let last = shuts.into_iter().flatten().last().expect("it was open");
            assert_eq!(mouth_of(&last), 0);
            animator.set_state(AgentState::Speaking, false);
            seen.extend((held_at..20).map(|of| show(&mut animator, of as u64 + 4, of)));
            assert_eq!(seen, all, "held at {held_at}");
        }
    }

    #[test]
    fn a_key_that_is_left_out_costs_no_second_anchor() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        let mut anchor_count = 0;
        for n in 0..25 * 30 {
            if n > 0 && n % 5 == 0 {
                animator.request_key_frame();
            }
            let Some(frame) = animator.next_frame(at(n), None) else { continue };
            if frame.is_key_frame && n > 0 {
                animator.on_key_frame_dropped();
            }
            anchor_count += usize::from(*frame.payload == *b"anchor");
        }
        assert_eq!(anchor_count, 1);
    }

    #[test]
    fn an_anchor_goes_before_what_depends_on_it_and_again_after_each_key() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        let mut anchor_sent_at = None;
        let (mut anchor_count, mut leant) = (0, 0);
        for n in 0..25 * 60 {
            if n % 500 == 0 {
                animator.request_key_frame();
            }
            let Some(frame) = animator.next_frame(at(n), None) else { continue };
            if frame.is_key_frame {
                anchor_sent_at = None;
            } else if *frame.payload == *b"anchor" {
                assert!(frame.base_layer, "a reference frame is sent reliably");
                assert_eq!(anchor_sent_at.replace(n), None, "one is enough");
                anchor_count += 1;
            } else if frame.payload[0] >= 30 {
                assert!(anchor_sent_at.is_some(), "frame {n}");
                leant += 1;
            }
        }
        assert_eq!(anchor_count, 3);
        assert!(leant > 30, "{leant}");
    }

    #[test]
    fn a_cut_closes_the_mouth_and_a_forgotten_piece_is_silent() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.next_frame(at(0), None);
        animator.add_phones(SEGMENT, &phones(&["aa"; 9]));
        animator.next_frame(at(1), Some((SEGMENT, 0.3)));
        animator.retain_segments(|segment| segment != SEGMENT);
        animator.next_frame(at(2), Some((SEGMENT, 0.34)));
        assert_eq!(mouth_of(&animator.next_frame(at(3), Some((SEGMENT, 0.38))).unwrap()), 0);
    }

    #[test]
    fn pictures_go_on_between_two_pieces_of_speech() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.next_frame(at(0), None);
        animator.set_state(AgentState::Speaking, false);
        assert!((1..25 * 3).all(|n| animator.next_frame(at(n), None).is_some()));
    }

    #[test]
    fn in_silence_pictures_lie_at_most_a_tenth_of_a_second_apart() {
        for (rate, max_gap) in [(15, 1), (25, 2), (30, 3)] {
            let mut animator = AvatarAnimator::new(test_pose_set(), rate, 1);
            let at = |n: u64| Time::from_micros(n * 1_000_000 / u64::from(rate));
            let frames = u64::from(rate) * 60;
            let times: Vec<u64> =
                (0..frames).filter(|n| animator.next_frame(at(*n), None).is_some()).collect();
            let gap = times.windows(2).map(|w| w[1] - w[0]).max().unwrap();
            assert_eq!(gap, max_gap, "{rate} a second: {} s", at(gap));
            assert!(
                times.len() as u64 <= frames / max_gap + frames / 4,
                "{} of {frames}",
                times.len()
            );
        }
    }

    #[test]
    fn a_narrow_line_gets_a_still_picture_less_often() {
        let need = PoseCache::new(test_pose_set()).mean_frame_bytes() * 8.0 * 25.0;
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.add_phones(SEGMENT, &phones(&["aa", "p", "s", "uw", "t", "ow"].repeat(40)));
        for n in 0..200 {
            animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04)));
        }
        // The bandwidth falls below the send rate; the reduction lasts for ten seconds.
        animator.set_bandwidth((need * 2.0) as u64);
        animator.set_bandwidth((need * 0.2) as u64);
        let times: Vec<u64> =
            (200..400).filter(|n| animator.next_frame(at(*n), None).is_some()).collect();
        let gap = times.windows(2).map(|w| w[1] - w[0]).max().unwrap();
        assert_eq!(at(gap).since(Time::ZERO), MAX_LOW_BANDWIDTH_GAP);
    }

    #[test]
    fn thirty_pictures_a_second_are_sent_where_they_differ() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 30, 1);
        animator.add_phones(SEGMENT, &phones(&["aa"; 100]));
        let at = |n: u64| Time::from_micros(n * 1_000_000 / 30);
        animator.set_state(AgentState::Speaking, false);
        let sent: Vec<u64> = (1..150)
            .filter(|n| {
                animator.next_frame(at(*n), Some((SEGMENT, 1.0 + *n as f32 / 30.0))).is_some()
            })
            .collect();
        assert!((60..110).contains(&sent.len()), "{} of 149", sent.len());
        assert!(sent.windows(2).all(|w| w[1] - w[0] <= 2), "{sent:?}");
    }

    #[test]
    fn the_base_layer_comes_at_least_every_250_frames() {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.add_phones(SEGMENT, &phones(&["aa"; 200]));
        let mut gap = 0;
        for n in 0..2000 {
            let Some(frame) = animator.next_frame(at(n), Some((SEGMENT, (n % 400) as f32 * 0.04)))
            else {
                continue;
            };
            gap = if frame.base_layer { 0 } else { gap + 1 };
            assert!(gap < 250);
        }
    }

    #[test]
    fn a_narrow_line_gets_fewer_and_smaller_frames_and_never_none() {
        let need = {
            let cache = PoseCache::new(test_pose_set());
            cache.mean_frame_bytes() * 8.0 * 25.0
        };
        let sent = |part: f64| {
            let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
            animator.add_phones(SEGMENT, &phones(&["aa", "p", "s", "uw", "t", "ow"].repeat(40)));
            let mut speak = |from: u64| -> Vec<usize> {
                (from..from + 200)
                    .filter_map(|n| animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))))
                    .map(|frame| frame.payload.len())
                    .collect()
            };
            assert_eq!(speak(0).len(), 200);
            animator.set_bandwidth((need * 2.0) as u64);
            animator.set_bandwidth((need * part) as u64);
            (200..400)
                .filter_map(|n| animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))))
                .map(|frame| frame.payload.len())
                .collect::<Vec<usize>>()
        };
        let (full, changes, coarse, half) = (sent(1.9), sent(0.65), sent(0.4), sent(0.2));
        assert_eq!(full.len(), 200);
        assert!(
            changes.len() < full.len() && changes.iter().all(|n| *n == 1000),
            "{}",
            changes.len()
        );
        assert!(
            coarse.len() == changes.len() && coarse.iter().all(|n| *n == 340),
            "{}",
            coarse.len()
        );
        assert!(
            (49..=104).contains(&half.len()) && half.iter().all(|n| *n == 340),
            "{}",
            half.len()
        );
    }

    /// An animator of `test_pose_set()`, and its pose cache, which takes upgrades.
    fn animator_and_poses() -> (AvatarAnimator, Arc<PoseCache>) {
        let poses = Arc::new(PoseCache::new(test_pose_set()));
        (AvatarAnimator::with_poses(Arc::clone(&poses), 25, 1), poses)
    }

    #[test]
    fn a_face_changes_over_to_a_better_set_without_a_key() {
        let (mut animator, poses) = animator_and_poses();
        assert!(
            animator.next_frame(at(0), None).unwrap().is_key_frame && !animator.swap_pose_set()
        );
        let mut n = 1;
        let mut wait_for = |animator: &mut AvatarAnimator, wanted: &dyn Fn(&VideoFrame) -> bool| loop {
            let frame = animator.next_frame(at(n), None);
            n += 1;
            assert!(n < 2000 && frame.as_ref().is_none_or(|frame| !frame.is_key_frame));
            if let Some(frame) = frame.filter(|frame| wanted(frame)) {
                return frame;
            }
        };
        // The head leans.
        wait_for(&mut animator, &|frame| *frame.payload == *b"anchor");
        wait_for(&mut animator, &|frame| frame.payload[0] >= 30);
        let better = Arc::new(PoseCache::new(test_pose_set()));
        poses.set_upgrade(Arc::clone(&better));
        poses.set_upgrade(Arc::new(PoseCache::new(test_pose_set())));
        assert!(animator.swap_pose_set() && !animator.swap_pose_set());
        let next = wait_for(&mut animator, &|_| true);
        assert!(
            next.payload[0] >= 30 && next.payload.len() > 6,
            "the current pose continues, without a reference frame before it"
        );
        let bytes = (0..31).map(|frame| better.frame(frame, 0).as_ptr());
        assert!(bytes.into_iter().any(|bytes| bytes == next.payload.as_ptr()), "of the better set");
    }

    #[test]
    fn a_better_set_with_other_keys_sends_them_first() {
        let other = |key: &'static [u8], anchor: &'static [u8]| {
            let set = test_pose_set();
            let frames = (0..31).map(|i| [0, 1].map(|level| set.frame(i, level).clone()).to_vec());
            let (key, anchors) = (Bytes::from_static(key), vec![Bytes::from_static(anchor)]);
            let set = PoseSet::new(set.manifest().clone(), key, anchors, frames.collect()).unwrap();
            Arc::new(PoseCache::new(Arc::new(set)))
        };
        let (mut animator, poses) = animator_and_poses();
        animator.next_frame(at(0), None);
        let leans = |animator: &mut AvatarAnimator, from: u64| {
            (from..from + 1000).find_map(|n| {
                let payload = animator.next_frame(at(n), None)?.payload;
                (payload[0] >= 30).then_some((n, payload))
            })
        };
        let (n, _) = leans(&mut animator, 1).unwrap();
        let next = other(b"key", b"other anchor");
        poses.set_upgrade(Arc::clone(&next));
        assert!(animator.swap_pose_set());
        let (n, payload) = leans(&mut animator, n + 1).unwrap();
        assert_eq!(*payload, *b"other anchor", "before what depends on it");
        next.set_upgrade(other(b"other key", b"other anchor"));
        animator.request_key_frame();
        assert!(animator.next_frame(at(n + 1), None).unwrap().is_key_frame);
        assert!(animator.swap_pose_set());
        let frame = animator.next_frame(at(n + 2), None).unwrap();
        assert!(
            frame.is_key_frame && *frame.payload == *b"other key",
            "at once, although another key frame was just sent"
        );
    }

    #[test]
    fn frames_are_shared_and_not_copied() {
        let set = test_pose_set();
        let mut animator = AvatarAnimator::new(Arc::clone(&set), 25, 1);
        assert_eq!(
            animator.next_frame(at(0), None).unwrap().payload.as_ptr(),
            set.key_frame().as_ptr()
        );
    }
}

#[cfg(test)]
#[path = "motion_tests.rs"]
mod motion_tests;
