//! Playout of the agent's audio: segments of speech, sample by sample.
//!
//! The media clock pulls frames of 10 or 20 ms. A segment follows the previous one without a gap.
//! Ducking is a ramp. Holding and canceling leave a short fade of the audio that would have come
//! next; it is mixed into the following frame, so that there is no click. The position stays exact
//! to the sample: a held segment resumes at the very sample that its hold reported.
//!
//! States of a segment; only the front of the queue plays:
//!
//! ```text
//!       add_segment        play         rendered at the front: Started
//! (new) ──────────> Added ─────> Queued ──────────────────────────────> Playing
//!
//! Playing ── no sample in time: Stalled ─────────────────────> Stalled
//! Stalled ── samples arrive, or complete: Progress ──────────> Playing
//! Playing, Stalled ── hold ──> Held ── resume ───────────────> Playing, Stalled
//! Playing ── complete and all samples have left: Finished ───> removed
//! any state ── cancel (its epoch), discard (its id) ─────────> removed
//! ```
//!
//! A hold applies to the whole playout, so it also stops queued and stalled segments.

use std::collections::VecDeque;

use conversation::input::{Epoch, PlayoutEvent, SegmentId};
use conversation::time::Position;

/// Maximum number of samples per frame: 20 ms at 48 kHz.
pub const FRAME_SAMPLES_48K: usize = 960;
/// Samples of a short frame, used if a change is near: 10 ms.
pub const SHORT_FRAME_SAMPLES: usize = FRAME_SAMPLES_48K / 2;

/// −12 dB.
const DUCK_GAIN: f32 = 0.251_19;
/// Gain change per sample of the ramp: the full range within 20 ms.
const GAIN_STEP: f32 = (1.0 - DUCK_GAIN) / FRAME_SAMPLES_48K as f32;
/// Samples of the fade-out at a hold and of the fade-in at its end: 5 ms.
const HOLD_FADE_SAMPLES: usize = 240;
/// Samples between two progress reports of the playing segment: .1 s.
const PROGRESS_INTERVAL_SAMPLES: usize = 5 * FRAME_SAMPLES_48K;

struct Segment {
    id: SegmentId,
    epoch: Epoch,
    chunks: VecDeque<Vec<i16>>,
    /// Samples of the first chunk that have left.
    offset: usize,
    /// Samples of the segment that have left.
    position: u64,
    /// Samples received so far.
    received: u64,
    complete: bool,
    started: bool,
    /// Samples of silence before its first one.
    lead_in: usize,
}

impl Segment {
    /// The next contiguous samples; empty only if all received samples have left.
    fn next_samples(&self) -> &[i16] {
        self.chunks.front().map_or(&[], |c| &c[self.offset..])
    }

    fn advance(&mut self, n: usize) -> Option<Vec<i16>> {
        self.offset += n;
        self.position += n as u64;
        let done = self.chunks.front().is_some_and(|c| self.offset >= c.len());
        if done {
            self.offset = 0;
            return self.chunks.pop_front();
        }
        None
    }

    fn peek(&self, n: usize) -> impl Iterator<Item = i16> + '_ {
        self.chunks.iter().flatten().skip(self.offset).take(n).copied()
    }
}

/// The agent's audio of one call.
pub struct Playout {
    segments: Vec<Segment>,
    /// Segments that may play, in order; the first one plays.
    queue: VecDeque<SegmentId>,
    gain: f32,
    target_gain: f32,
    held: bool,
    /// Samples left of the fade-in after a hold.
    fade_in: usize,
    /// The fade-out after a hold or a cancellation, still to be mixed in.
    fade_tail: Box<[f32; FRAME_SAMPLES_48K]>,
    fade_tail_len: usize,
    /// Samples until the next progress report.
    until_progress: usize,
    /// The playing segment has no samples; the stall was reported.
    stalled: bool,
    underruns: u64,
    /// The first speech in the last frame.
    position: Option<PlayoutPosition>,
}

impl Default for Playout {
    fn default() -> Self {
        Self {
            segments: Vec::with_capacity(8),
            queue: VecDeque::with_capacity(8),
            gain: 1.0,
            target_gain: 1.0,
            held: false,
            fade_in: 0,
            fade_tail: Box::new([0.0; FRAME_SAMPLES_48K]),
            fade_tail_len: 0,
            until_progress: PROGRESS_INTERVAL_SAMPLES,
            stalled: false,
            underruns: 0,
            position: None,
        }
    }
}

/// Speech in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayoutPosition {
    /// The first segment in the frame.
    pub segment: SegmentId,
    /// Position in the segment of its first sample in this frame.
    pub position: Position,
    /// Index in the frame of that sample.
    pub offset: usize,
}

/// Playout events of segments, in order.
pub type PlayoutEvents = Vec<(SegmentId, PlayoutEvent)>;

impl Playout {
    /// Adds a segment whose samples will follow.
    pub fn add_segment(&mut self, id: SegmentId, epoch: Epoch) {
        let chunks = VecDeque::with_capacity(16);
        self.segments.push(Segment {
            id,
            epoch,
            chunks,
            offset: 0,
            position: 0,
            received: 0,
            complete: false,
            started: false,
            lead_in: 0,
        });
    }

    /// Adds samples to a segment, mono at 48 kHz. False if the segment is not needed any more.
    pub fn push(&mut self, id: SegmentId, samples: Vec<i16>) -> bool {
        let Some(segment) = self.segments.iter_mut().find(|p| p.id == id) else { return false };
        if !samples.is_empty() {
            segment.received += samples.len() as u64;
            segment.chunks.push_back(samples);
        }
        true
    }

    /// Marks a segment as complete; returns its length if it is still needed.
    pub fn complete(&mut self, id: SegmentId) -> Option<Position> {
        let segment = self.segments.iter_mut().find(|p| p.id == id)?;
        segment.complete = true;
        Some(Position::from_samples(segment.received))
    }

    /// Allows the segment to play: at once, or after the ones in the queue.
    pub fn play(&mut self, id: SegmentId) {
        if self.segments.iter().any(|p| p.id == id) && !self.queue.contains(&id) {
            self.queue.push_back(id);
        }
    }

    /// Silence of this many samples goes before a segment that has not started, from when it may
    /// play.
    pub fn set_lead_in(&mut self, id: SegmentId, samples: usize) {
        if let Some(segment) = self.segments.iter_mut().find(|p| p.id == id) {
            segment.lead_in = samples;
        }
    }

    /// Lowers the gain to −12 dB within 20 ms.
    pub fn duck(&mut self) {
        self.target_gain = DUCK_GAIN;
    }

    /// Restores the gain within 20 ms.
    pub fn unduck(&mut self) {
        self.target_gain = 1.0;
    }

    /// Pauses playout. Returns the position of the playing segment, if any; its next sample is the
    /// one at which it resumes.
    pub fn hold(&mut self) -> Option<(SegmentId, Position)> {
        if self.held {
            return self.current_segment();
        }
        self.held = true;
        let current = self.current_segment();
        if let Some((id, _)) = current {
            self.fade_out(id, HOLD_FADE_SAMPLES);
        }
        current
    }

    /// Resumes at the sample of the hold.
    pub fn resume(&mut self) {
        if self.held {
            self.held = false;
            self.fade_in = HOLD_FADE_SAMPLES;
        }
    }

    /// Drops every segment of an epoch. Returns the position of the playing segment, if it was one
    /// of them; its hold and its ducking end with it.
    pub fn cancel(&mut self, epoch: Epoch) -> Option<(SegmentId, Position)> {
        let current = self
            .current_segment()
            .filter(|(id, _)| self.segments.iter().any(|p| p.id == *id && p.epoch == epoch));
        if let Some((id, _)) = current
            && !self.held
        {
            self.fade_out(id, FRAME_SAMPLES_48K);
        }
        let front_goes = self
            .queue
            .front()
            .is_none_or(|id| self.segments.iter().any(|p| p.id == *id && p.epoch == epoch));
        if front_goes {
            self.held = false;
            self.fade_in = 0;
            self.stalled = false;
            self.target_gain = 1.0;
        }
        let segments = &self.segments;
        self.queue.retain(|id| segments.iter().any(|p| p.id == *id && p.epoch != epoch));
        self.segments.retain(|p| p.epoch != epoch);
        current
    }

    /// Whether a segment plays, or may still play.
    #[must_use]
    pub fn contains(&self, id: SegmentId) -> bool {
        self.segments.iter().any(|p| p.id == id)
    }

    /// Drops one segment.
    pub fn discard(&mut self, id: SegmentId) {
        if self.current_segment().is_some_and(|(s, _)| s == id) && !self.held {
            self.fade_out(id, FRAME_SAMPLES_48K);
        }
        self.queue.retain(|q| *q != id);
        self.segments.retain(|p| p.id != id);
    }

    /// Whether playout is silent: nothing fades, and the queue is empty or held.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.fade_tail_len == 0 && (self.held || self.queue.is_empty())
    }

    /// Whether a segment has begun and not finished: it plays, waits for samples, or is held.
    #[must_use]
    pub fn is_within_segment(&self) -> bool {
        self.current_segment().is_some()
    }

    /// Whether audio is pending: a segment waits for samples, for permission to play, or for a hold
    /// to end.
    #[must_use]
    pub fn has_pending_audio(&self) -> bool {
        !self.segments.is_empty() && (self.position.is_none() || self.held)
    }

    /// How often a playing segment lacked a sample in time.
    #[must_use]
    pub fn underruns(&self) -> u64 {
        self.underruns
    }

    /// The first speech in the last rendered frame, if any.
    #[must_use]
    pub fn position(&self) -> Option<PlayoutPosition> {
        self.position
    }

    /// Renders the next frame, of at most [`FRAME_SAMPLES_48K`] samples, and appends its events.
    pub fn render(&mut self, frame: &mut [i16], events: &mut PlayoutEvents) {
        debug_assert!(frame.len() <= FRAME_SAMPLES_48K);
        self.position = None;
        self.report_progress(frame.len(), events);
        let mut filled = 0;
        while filled < frame.len() && !self.held {
            let Some(id) = self.queue.front().copied() else { break };
            let Some(at) = self.segments.iter().position(|p| p.id == id) else {
                self.queue.pop_front();
                continue;
            };
            let segment = &mut self.segments[at];
            if segment.lead_in > 0 && !segment.started {
                let silent = segment.lead_in.min(frame.len() - filled);
                frame[filled..filled + silent].fill(0);
                segment.lead_in -= silent;
                filled += silent;
                continue;
            }
            let n = segment.next_samples().len().min(frame.len() - filled);
            if n == 0 && !segment.complete {
                if segment.started {
                    self.underruns += 1;
                    if !self.stalled {
                        self.stalled = true;
                        events.push((
                            id,
                            PlayoutEvent::Stalled(Position::from_samples(segment.position)),
                        ));
                    }
                }
                break;
            }
            if !segment.started {
                segment.started = true;
                events.push((id, PlayoutEvent::Started));
            }
            if n > 0 {
                if self.position.is_none() {
                    self.position = Some(PlayoutPosition {
                        segment: id,
                        position: Position::from_samples(segment.position),
                        offset: filled,
                    });
                }
                let (gain, target) = (&mut self.gain, self.target_gain);
                let out = &mut frame[filled..filled + n];
                #[allow(clippy::float_cmp)] // all are set from the same constants
                if *gain == 1.0 && target == 1.0 && self.fade_in == 0 {
                    out.copy_from_slice(&segment.next_samples()[..n]);
                } else if *gain == target && self.fade_in == 0 {
                    for (out, sample) in out.iter_mut().zip(segment.next_samples()) {
                        *out = (f32::from(*sample) * target) as i16;
                    }
                } else {
                    for (out, sample) in out.iter_mut().zip(segment.next_samples()) {
                        *gain = if *gain > target {
                            (*gain - GAIN_STEP).max(target)
                        } else {
                            (*gain + GAIN_STEP).min(target)
                        };
                        let rise = 1.0 - self.fade_in as f32 / HOLD_FADE_SAMPLES as f32;
                        self.fade_in = self.fade_in.saturating_sub(1);
                        *out = (f32::from(*sample) * *gain * rise) as i16;
                    }
                }
                segment.advance(n);
                filled += n;
            }
            if segment.complete && segment.next_samples().is_empty() {
                events.push((id, PlayoutEvent::Finished(Position::from_samples(segment.position))));
                self.queue.pop_front();
                self.segments.remove(at);
            }
        }
        frame[filled..].fill(0);
        if filled == 0 {
            self.gain = self.target_gain; // nothing plays: the ramp would not be heard
        }
        if self.fade_tail_len > 0 {
            for (out, faded) in frame.iter_mut().zip(&self.fade_tail[..self.fade_tail_len]) {
                *out = (f32::from(*out) + faded).clamp(-32768.0, 32767.0) as i16;
            }
            // The rest belongs to the next frame.
            let mixed = self.fade_tail_len.min(frame.len());
            self.fade_tail.copy_within(mixed..self.fade_tail_len, 0);
            self.fade_tail_len -= mixed;
        }
    }

    /// Reports the position at the start of a frame of `samples` samples: periodically, and at once
    /// when a stall ends.
    fn report_progress(&mut self, samples: usize, events: &mut PlayoutEvents) {
        let due = self.until_progress <= samples;
        self.until_progress =
            if due { self.until_progress + PROGRESS_INTERVAL_SAMPLES } else { self.until_progress }
                - samples;
        let Some((id, position)) = self.current_segment().filter(|_| !self.held) else { return };
        let ends_stall = self.stalled
            && self
                .segments
                .iter()
                .any(|p| p.id == id && (p.complete || !p.next_samples().is_empty()));
        if ends_stall {
            self.stalled = false;
        }
        if ends_stall || (!self.stalled && due) {
            events.push((id, PlayoutEvent::Progress(position)));
        }
    }

    /// Segment and position that play next, if the segment has started.
    fn current_segment(&self) -> Option<(SegmentId, Position)> {
        let id = *self.queue.front()?;
        let segment = self.segments.iter().find(|p| p.id == id && p.started)?;
        Some((id, Position::from_samples(segment.position)))
    }

    fn fade_out(&mut self, id: SegmentId, samples: usize) {
        let Some(segment) = self.segments.iter().find(|p| p.id == id) else { return };
        let mut n = 0;
        for (i, sample) in segment.peek(samples).enumerate() {
            let fall = 1.0 - (i + 1) as f32 / samples as f32;
            let faded = f32::from(sample) * self.gain * fall;
            if i < self.fade_tail_len {
                self.fade_tail[i] += faded
            } else {
                self.fade_tail[i] = faded
            }
            n = i + 1;
        }
        self.fade_tail_len = self.fade_tail_len.max(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(0);

    fn ramp(from: i16, n: usize) -> Vec<i16> {
        (0..n).map(|i| from + i as i16).collect()
    }

    fn playing(id: u32, samples: Vec<i16>) -> Playout {
        let mut playout = Playout::default();
        playout.add_segment(SegmentId(id), EPOCH);
        playout.push(SegmentId(id), samples);
        playout.complete(SegmentId(id));
        playout.play(SegmentId(id));
        playout
    }

    fn render_frame(playout: &mut Playout) -> (Box<[i16; FRAME_SAMPLES_48K]>, PlayoutEvents) {
        let mut out = Box::new([0; FRAME_SAMPLES_48K]);
        let mut events = Vec::new();
        playout.render(&mut out[..], &mut events);
        (out, events)
    }

    #[test]
    fn a_lead_in_is_silent_to_the_sample_and_only_once() {
        let mut playout = playing(1, ramp(1, 1000));
        playout.set_lead_in(SegmentId(1), FRAME_SAMPLES_48K + 100);
        let (silence, events) = render_frame(&mut playout);
        assert!(silence.iter().all(|sample| *sample == 0) && events.is_empty());
        assert!(playout.position().is_none() && playout.has_pending_audio());
        let (speech, events) = render_frame(&mut playout);
        assert_eq!(speech[98..102], [0, 0, 1, 2]);
        assert_eq!(events[0], (SegmentId(1), PlayoutEvent::Started));
        let position = playout.position().unwrap();
        assert_eq!((position.offset, position.position), (100, Position::ZERO));
        // It has started.
        playout.set_lead_in(SegmentId(1), 500);
        assert_eq!(render_frame(&mut playout).0[..2], [861, 862]);
    }

    #[test]
    fn two_segments_follow_each_other_without_a_gap() {
        let mut playout = playing(1, ramp(1, 1000));
        playout.add_segment(SegmentId(2), EPOCH);
        playout.push(SegmentId(2), ramp(1001, 300));
        playout.push(SegmentId(2), ramp(1301, 300));
        playout.complete(SegmentId(2));
        playout.play(SegmentId(2));
        let (first, events) = render_frame(&mut playout);
        assert_eq!(events, [(SegmentId(1), PlayoutEvent::Started)]);
        let (second, events) = render_frame(&mut playout);
        assert_eq!(
            events,
            [
                (SegmentId(1), PlayoutEvent::Finished(Position::from_samples(1000))),
                (SegmentId(2), PlayoutEvent::Started),
                (SegmentId(2), PlayoutEvent::Finished(Position::from_samples(600)))
            ]
        );
        let samples: Vec<i16> = first.iter().chain(second.iter()).copied().collect();
        assert_eq!(samples[..1600], ramp(1, 1600));
        assert!(samples[1600..].iter().all(|s| *s == 0));
        assert!(playout.is_silent());
    }

    #[test]
    fn short_blocks_and_long_ones_are_the_same_sound() {
        let play = |sizes: &[usize]| {
            let mut playout = playing(1, ramp(1, 6_000));
            let (mut samples, mut events) = (Vec::new(), Vec::new());
            for (n, size) in sizes.iter().cycle().enumerate() {
                let mut frame = [0; FRAME_SAMPLES_48K];
                playout.render(&mut frame[..*size], &mut events);
                samples.extend_from_slice(&frame[..*size]);
                match samples.len() {
                    // A hold, silence, a cancellation: fades are equally long with both sizes.
                    1_920 => drop(playout.hold()),
                    3_840 => playout.resume(),
                    4_800 => playout.duck(),
                    5_760 => drop(playout.cancel(EPOCH)),
                    8_640.. => break,
                    _ => assert!(n < 100),
                }
            }
            (samples, events)
        };
        let (long, long_events) = play(&[FRAME_SAMPLES_48K]);
        let short = SHORT_FRAME_SAMPLES;
        for sizes in [&[short][..], &[short, short, FRAME_SAMPLES_48K]] {
            let (samples, events) = play(sizes);
            let differs = samples.iter().zip(&long).position(|(a, b)| a != b);
            assert_eq!((differs, samples.len()), (None, long.len()));
            assert_eq!(
                events.len(),
                long_events.len(),
                "a position each .1 s: {events:?} {long_events:?}"
            );
        }
    }

    #[test]
    fn only_segments_that_have_not_started_are_awaited() {
        let mut playout = Playout::default();
        assert!(!playout.has_pending_audio());
        playout.add_segment(SegmentId(1), EPOCH);
        render_frame(&mut playout);
        assert!(playout.has_pending_audio(), "no word and no sample yet");
        playout.push(SegmentId(1), vec![5; 2_000]);
        playout.play(SegmentId(1));
        playout.complete(SegmentId(1));
        render_frame(&mut playout);
        assert!(!playout.has_pending_audio());
        playout.hold();
        render_frame(&mut playout);
        assert!(playout.has_pending_audio(), "it may go on at any time");
        playout.resume();
        render_frame(&mut playout);
        render_frame(&mut playout);
        assert!(!playout.has_pending_audio() && playout.is_silent());
    }

    #[test]
    fn a_held_segment_resumes_at_the_same_sample() {
        let mut playout = playing(1, ramp(1, 5000));
        render_frame(&mut playout);
        assert_eq!(playout.hold(), Some((SegmentId(1), Position::from_samples(960))));
        let (faded, _) = render_frame(&mut playout);
        assert!(
            faded[0] > 900 && faded[120] > 400 && faded[120] < 600,
            "fades the following samples: {} {}",
            faded[0],
            faded[120]
        );
        assert!(faded[HOLD_FADE_SAMPLES..].iter().all(|s| *s == 0), "silent after 5 ms");
        assert!(render_frame(&mut playout).0.iter().all(|s| *s == 0));
        playout.resume();
        let (after, _) = render_frame(&mut playout);
        assert_eq!(
            after[HOLD_FADE_SAMPLES..],
            ramp(961 + HOLD_FADE_SAMPLES as i16, FRAME_SAMPLES_48K - HOLD_FADE_SAMPLES),
            "the same samples at the same places"
        );
    }

    #[test]
    fn ducking_takes_one_block_and_twelve_decibels() {
        let mut playout = playing(1, vec![10_000; 4000]);
        render_frame(&mut playout);
        playout.duck();
        let (ramped, _) = render_frame(&mut playout);
        assert!(ramped[0] > 9_900 && ramped[FRAME_SAMPLES_48K - 1] < 2_600);
        let (ducked, _) = render_frame(&mut playout);
        assert!(ducked.iter().all(|s| (2_505..=2_515).contains(s)), "{}", ducked[0]);
        playout.unduck();
        let (risen, _) = render_frame(&mut playout);
        assert!(risen[FRAME_SAMPLES_48K - 1] > 9_900);
    }

    #[test]
    fn a_cut_fades_within_one_block_and_tells_where() {
        let mut playout = playing(1, vec![10_000; 48_000]);
        render_frame(&mut playout);
        assert_eq!(playout.cancel(EPOCH), Some((SegmentId(1), Position::from_samples(960))));
        let (faded, events) = render_frame(&mut playout);
        assert!(events.is_empty(), "a cut piece never finishes");
        assert!(faded[0] > 9_900 && faded[FRAME_SAMPLES_48K / 2] < 5_100);
        assert_eq!(faded[FRAME_SAMPLES_48K - 1], 0);
        assert!(playout.is_silent());
        assert!(!playout.push(SegmentId(1), vec![1]), "late samples are dropped");
    }

    #[test]
    fn a_cut_of_a_held_reply_ends_the_hold_and_makes_no_sound() {
        let mut playout = playing(1, vec![10_000; 48_000]);
        render_frame(&mut playout);
        playout.hold();
        render_frame(&mut playout);
        assert_eq!(playout.cancel(EPOCH), Some((SegmentId(1), Position::from_samples(960))));
        playout.add_segment(SegmentId(2), Epoch(1));
        playout.push(SegmentId(2), vec![7; 960]);
        playout.play(SegmentId(2));
        assert_eq!(render_frame(&mut playout).0[0], 7, "the next reply sounds");
    }

    #[test]
    fn a_segment_without_samples_yet_waits_and_keeps_its_position() {
        let mut playout = Playout::default();
        playout.add_segment(SegmentId(1), EPOCH);
        playout.play(SegmentId(1));
        assert!(render_frame(&mut playout).1.is_empty(), "not begun");
        playout.push(SegmentId(1), vec![5; 100]);
        let late = PlayoutEvent::Stalled(Position::from_samples(100));
        assert_eq!(
            render_frame(&mut playout).1,
            [(SegmentId(1), PlayoutEvent::Started), (SegmentId(1), late)]
        );
        assert!(render_frame(&mut playout).1.is_empty(), "told once");
        assert_eq!(playout.underruns(), 2, "the rest of its first block, and the next one");
        playout.push(SegmentId(1), vec![6; 100]);
        playout.complete(SegmentId(1));
        let (out, events) = render_frame(&mut playout);
        assert_eq!((out[0], out[99], out[100]), (6, 6, 0));
        let (goes_on, ends) = (Position::from_samples(100), Position::from_samples(200));
        assert_eq!(
            events,
            [
                (SegmentId(1), PlayoutEvent::Progress(goes_on)),
                (SegmentId(1), PlayoutEvent::Finished(ends))
            ]
        );
    }

    #[test]
    fn playout_positions_are_reported_ten_times_per_second() {
        let mut playout = playing(1, vec![1; 48_000]);
        let mut events = Vec::new();
        for _ in 0..20 {
            events.extend(render_frame(&mut playout).1);
        }
        let progress: Vec<_> =
            events.iter().filter(|(_, e)| matches!(e, PlayoutEvent::Progress(_))).collect();
        assert_eq!(progress.len(), 4);
        // The fifth frame's first sample leaves 80 ms after the first one's.
        assert_eq!(
            *progress[0],
            (SegmentId(1), PlayoutEvent::Progress(Position::from_samples(3840)))
        );
    }
}
