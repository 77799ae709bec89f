//! Animates one avatar in one call: chooses a frame for every instant. It runs on the media thread,
//! takes no lock and allocates nothing per frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conversation::direction::Expression;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::{Position, Time};
use models::face::{Mouth, PoseSet};
use models::tts::Phone;
use recording::{Frame, Size};

use super::bandwidth_estimator::{BandwidthEstimator, SendMode};
use super::head_motion::Speech;
use super::listener_cues::ListenerCues;
use super::mood::Requested;
use super::motion::{Moment, Motion, PoseState};
use super::pose_cache::{PoseCache, Shown};
use super::rhythm::Rhythm;
use super::visemes::{VisemeTrack, lerp};
use crate::speak::gesture_words::{GestureWord, GestureWords};
use crate::speak::manners::Manner;
use crate::transport::VideoFrame;

/// An avatar without pictures for this time is not seen: there is no video and no recording.
const MAX_UNSEEN: Duration = Duration::from_millis(250);
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

    /// Time until a face that does not speak shows an expression, if nothing delays it. Zero if it
    /// does not show it before speech: calm needs no preparation, on a narrow line and while the user
    /// speaks the face is calm, and nobody may see it.
    #[must_use]
    pub fn time_to_show(&self, expression: Expression, now: Time) -> Duration {
        let is_seen = now.since(self.now) < MAX_UNSEEN;
        let is_full = self.bandwidth.send_mode(now) == SendMode::Full;
        if expression == Expression::Calm || self.user_speaking || !is_full || !is_seen {
            return Duration::ZERO;
        }
        let frame_seconds = 1.0 / self.frame_rate as f32;
        let pictures = self.motion.pictures_to(expression, self.poses.paths(), frame_seconds);
        Duration::from_secs(u64::from(pictures)) / self.frame_rate
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
            let own = announced.and_then(shown_as).unwrap_or_default();
            Speech {
                segment,
                at: at + LIP_LEAD_SECONDS,
                jaw: self.mouth.jaw,
                rhythm: n.and_then(rhythm),
                next_rhythm: n.and_then(|n| rhythm(n + 1)),
                gestures: words_of(&self.gesture_words, segment),
                shown_as: own,
                next: announced.and_then(|n| shown_as(n + 1)),
            }
        });
        let moment = Moment {
            now,
            paths: self.poses.paths(),
            state,
            held: self.held,
            user_speaking: self.user_speaking,
            speech,
            requested: requested.map(|&Announced { segment, shown_as, at, .. }| Requested {
                segment,
                shown_as,
                at,
            }),
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
#[path = "motion_tests.rs"]
mod motion_tests;
#[cfg(test)]
#[path = "test_calls.rs"]
mod test_calls;
#[cfg(test)]
#[path = "animator_tests.rs"]
mod tests;
