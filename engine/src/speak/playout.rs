//! What sounds: pieces of speech, sample by sample.
//!
//! Pulled by the media clock, a block of 10 or 20 ms at a time. A piece sounds right behind the one before it, without a gap. Ducking is a
//! ramp; holding and cutting leave a short fade of what would have come next, mixed into the following block, so that nothing clicks and
//! the position stays exact to the sample: a held piece goes on at the very sample of which its hold was told.

use std::collections::VecDeque;

use conversation::input::{Epoch, PlayoutEvent, SegmentId};
use conversation::time::Position;

/// Samples a block at most: 20 ms at 48 kHz.
pub const BLOCK: usize = 960;
/// Samples of a short block, for when a change is near: 10 ms.
pub const SHORT: usize = BLOCK / 2;

/// −12 dB.
const DUCKED: f32 = 0.251_19;
/// Gain per sample of the ramp: the whole way within 20 ms.
const RAMP: f32 = (1.0 - DUCKED) / BLOCK as f32;
/// Samples of the fade at a hold and of the fade in at its end: 5 ms.
const HOLD_FADE: usize = 240;
/// Samples between two reports of a sounding piece's position: .1 s.
const REPORT_EVERY: usize = 5 * BLOCK;

struct Piece {
    id: SegmentId,
    epoch: Epoch,
    chunks: VecDeque<Vec<i16>>,
    /// Samples of the first chunk that have left.
    offset: usize,
    /// Samples that have left.
    position: u64,
    /// Samples given so far.
    given: u64,
    complete: bool,
    started: bool,
}

impl Piece {
    /// The samples that come next, in one run: never empty unless all that were given have left.
    fn next(&self) -> &[i16] {
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

/// The agent's voice of one call.
pub struct Playout {
    pieces: Vec<Piece>,
    /// What may sound, in order; the first one does.
    queue: VecDeque<SegmentId>,
    gain: f32,
    target: f32,
    held: bool,
    /// Samples left of the fade in after a hold.
    fade_in: usize,
    /// What a hold or a cut faded out, still to be mixed in.
    tail: Box<[f32; BLOCK]>,
    tail_len: usize,
    /// Samples until the next report.
    unreported: usize,
    /// What sounds has no samples; told.
    stalled: bool,
    underruns: u64,
    /// What sounded first in the last block.
    leaving: Option<Leaving>,
}

impl Default for Playout {
    fn default() -> Self {
        Self {
            pieces: Vec::with_capacity(8),
            queue: VecDeque::with_capacity(8),
            gain: 1.0,
            target: 1.0,
            held: false,
            fade_in: 0,
            tail: Box::new([0.0; BLOCK]),
            tail_len: 0,
            unreported: REPORT_EVERY,
            stalled: false,
            underruns: 0,
            leaving: None,
        }
    }
}

/// Speech of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The block's first piece.
    pub piece: SegmentId,
    /// Position in the piece of its first sample in this block.
    pub position: Position,
    /// Where in the block that sample is.
    pub offset: usize,
}

/// Reports of pieces, in order.
pub type Reports = Vec<(SegmentId, PlayoutEvent)>;

impl Playout {
    /// A piece whose samples will come.
    pub fn open(&mut self, id: SegmentId, epoch: Epoch) {
        let chunks = VecDeque::with_capacity(16);
        self.pieces.push(Piece {
            id,
            epoch,
            chunks,
            offset: 0,
            position: 0,
            given: 0,
            complete: false,
            started: false,
        });
    }

    /// More samples of a piece, mono at 48 kHz. False if it is not wanted any more.
    pub fn push(&mut self, id: SegmentId, samples: Vec<i16>) -> bool {
        let Some(piece) = self.pieces.iter_mut().find(|p| p.id == id) else { return false };
        if !samples.is_empty() {
            piece.given += samples.len() as u64;
            piece.chunks.push_back(samples);
        }
        true
    }

    /// All samples of a piece were given; its length, if it is still wanted.
    pub fn complete(&mut self, id: SegmentId) -> Option<Position> {
        let piece = self.pieces.iter_mut().find(|p| p.id == id)?;
        piece.complete = true;
        Some(Position::from_samples(piece.given))
    }

    /// The piece may sound: at once, or behind what sounds.
    pub fn play(&mut self, id: SegmentId) {
        if self.pieces.iter().any(|p| p.id == id) && !self.queue.contains(&id) {
            self.queue.push_back(id);
        }
    }

    /// −12 dB within 20 ms.
    pub fn duck(&mut self) {
        self.target = DUCKED;
    }

    /// As loud as before, within 20 ms.
    pub fn unduck(&mut self) {
        self.target = 1.0;
    }

    /// Pauses. The position of what sounded, if anything did: its next sample is the one it goes on with.
    pub fn hold(&mut self) -> Option<(SegmentId, Position)> {
        if self.held {
            return self.sounding();
        }
        self.held = true;
        let sounding = self.sounding();
        if let Some((id, _)) = sounding {
            self.fade_out(id, HOLD_FADE);
        }
        sounding
    }

    /// Goes on at the sample it was held at.
    pub fn resume(&mut self) {
        if self.held {
            self.held = false;
            self.fade_in = HOLD_FADE;
        }
    }

    /// Drops every piece of an epoch; the position of the one that sounded, if it was one of them. Its hold and its ducking end with it.
    pub fn cancel(&mut self, epoch: Epoch) -> Option<(SegmentId, Position)> {
        let sounding =
            self.sounding().filter(|(id, _)| self.pieces.iter().any(|p| p.id == *id && p.epoch == epoch));
        if let Some((id, _)) = sounding
            && !self.held
        {
            self.fade_out(id, BLOCK);
        }
        let front_goes =
            self.queue.front().is_none_or(|id| self.pieces.iter().any(|p| p.id == *id && p.epoch == epoch));
        if front_goes {
            self.held = false;
            self.fade_in = 0;
            self.stalled = false;
            self.target = 1.0;
        }
        let pieces = &self.pieces;
        self.queue.retain(|id| pieces.iter().any(|p| p.id == *id && p.epoch != epoch));
        self.pieces.retain(|p| p.epoch != epoch);
        sounding
    }

    /// Whether a piece sounds, or may yet.
    #[must_use]
    pub fn has(&self, id: SegmentId) -> bool {
        self.pieces.iter().any(|p| p.id == id)
    }

    /// Drops one piece.
    pub fn discard(&mut self, id: SegmentId) {
        if self.sounding().is_some_and(|(s, _)| s == id) && !self.held {
            self.fade_out(id, BLOCK);
        }
        self.queue.retain(|q| *q != id);
        self.pieces.retain(|p| p.id != id);
    }

    /// Whether anything sounds, may sound without a further word, or fades.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.tail_len == 0 && (self.held || self.queue.is_empty())
    }

    /// Whether something will sound that does not yet, or not now: a piece that waits for its samples, for its word, or for the end of a hold.
    #[must_use]
    pub fn awaits(&self) -> bool {
        !self.pieces.is_empty() && (self.leaving.is_none() || self.held)
    }

    /// How often a sounding piece had no sample in time.
    #[must_use]
    pub fn underruns(&self) -> u64 {
        self.underruns
    }

    /// What sounded first in the block rendered last, if speech did.
    #[must_use]
    pub fn leaving(&self) -> Option<Leaving> {
        self.leaving
    }

    /// The next block, of at most [`BLOCK`] samples. Tells what happened in it.
    pub fn render(&mut self, block: &mut [i16], reports: &mut Reports) {
        debug_assert!(block.len() <= BLOCK);
        self.leaving = None;
        self.report(block.len(), reports);
        let mut filled = 0;
        while filled < block.len() && !self.held {
            let Some(id) = self.queue.front().copied() else { break };
            let Some(at) = self.pieces.iter().position(|p| p.id == id) else {
                self.queue.pop_front();
                continue;
            };
            let piece = &mut self.pieces[at];
            let n = piece.next().len().min(block.len() - filled);
            if n == 0 && !piece.complete {
                if piece.started {
                    self.underruns += 1;
                    if !self.stalled {
                        self.stalled = true;
                        reports.push((id, PlayoutEvent::Stalled(Position::from_samples(piece.position))));
                    }
                }
                break;
            }
            if !piece.started {
                piece.started = true;
                reports.push((id, PlayoutEvent::Started));
            }
            if n > 0 {
                if self.leaving.is_none() {
                    self.leaving = Some(Leaving {
                        piece: id,
                        position: Position::from_samples(piece.position),
                        offset: filled,
                    });
                }
                let (gain, target) = (&mut self.gain, self.target);
                let out = &mut block[filled..filled + n];
                #[allow(clippy::float_cmp)] // all are set from the same constants
                if *gain == 1.0 && target == 1.0 && self.fade_in == 0 {
                    out.copy_from_slice(&piece.next()[..n]);
                } else if *gain == target && self.fade_in == 0 {
                    for (out, sample) in out.iter_mut().zip(piece.next()) {
                        *out = (f32::from(*sample) * target) as i16;
                    }
                } else {
                    for (out, sample) in out.iter_mut().zip(piece.next()) {
                        *gain = if *gain > target {
                            (*gain - RAMP).max(target)
                        } else {
                            (*gain + RAMP).min(target)
                        };
                        let rise = 1.0 - self.fade_in as f32 / HOLD_FADE as f32;
                        self.fade_in = self.fade_in.saturating_sub(1);
                        *out = (f32::from(*sample) * *gain * rise) as i16;
                    }
                }
                piece.advance(n);
                filled += n;
            }
            if piece.complete && piece.next().is_empty() {
                reports.push((id, PlayoutEvent::Finished(Position::from_samples(piece.position))));
                self.queue.pop_front();
                self.pieces.remove(at);
            }
        }
        block[filled..].fill(0);
        if filled == 0 {
            self.gain = self.target; // nothing sounds: no ramp is heard
        }
        if self.tail_len > 0 {
            for (out, faded) in block.iter_mut().zip(&self.tail[..self.tail_len]) {
                *out = (f32::from(*out) + faded).clamp(-32768.0, 32767.0) as i16;
            }
            // The rest is for the next block.
            let mixed = self.tail_len.min(block.len());
            self.tail.copy_within(mixed..self.tail_len, 0);
            self.tail_len -= mixed;
        }
    }

    /// Tells the position of the first sample of a block of so many: regularly, and at once where a stall ends.
    fn report(&mut self, samples: usize, reports: &mut Reports) {
        let due = self.unreported <= samples;
        self.unreported = if due { self.unreported + REPORT_EVERY } else { self.unreported } - samples;
        let Some((id, position)) = self.sounding().filter(|_| !self.held) else { return };
        let ends_stall =
            self.stalled && self.pieces.iter().any(|p| p.id == id && (p.complete || !p.next().is_empty()));
        if ends_stall {
            self.stalled = false;
        }
        if ends_stall || (!self.stalled && due) {
            reports.push((id, PlayoutEvent::Progress(position)));
        }
    }

    /// Piece and position that come next, if the piece has begun.
    fn sounding(&self) -> Option<(SegmentId, Position)> {
        let id = *self.queue.front()?;
        let piece = self.pieces.iter().find(|p| p.id == id && p.started)?;
        Some((id, Position::from_samples(piece.position)))
    }

    fn fade_out(&mut self, id: SegmentId, samples: usize) {
        let Some(piece) = self.pieces.iter().find(|p| p.id == id) else { return };
        let mut n = 0;
        for (i, sample) in piece.peek(samples).enumerate() {
            let fall = 1.0 - (i + 1) as f32 / samples as f32;
            let faded = f32::from(sample) * self.gain * fall;
            if i < self.tail_len {
                self.tail[i] += faded
            } else {
                self.tail[i] = faded
            }
            n = i + 1;
        }
        self.tail_len = self.tail_len.max(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E0: Epoch = Epoch(0);

    fn ramp(from: i16, n: usize) -> Vec<i16> {
        (0..n).map(|i| from + i as i16).collect()
    }

    fn with(id: u32, samples: Vec<i16>) -> Playout {
        let mut playout = Playout::default();
        playout.open(SegmentId(id), E0);
        playout.push(SegmentId(id), samples);
        playout.complete(SegmentId(id));
        playout.play(SegmentId(id));
        playout
    }

    fn block(playout: &mut Playout) -> (Box<[i16; BLOCK]>, Reports) {
        let mut out = Box::new([0; BLOCK]);
        let mut reports = Vec::new();
        playout.render(&mut out[..], &mut reports);
        (out, reports)
    }

    #[test]
    fn two_pieces_follow_each_other_without_a_gap() {
        let mut playout = with(1, ramp(1, 1000));
        playout.open(SegmentId(2), E0);
        playout.push(SegmentId(2), ramp(1001, 300));
        playout.push(SegmentId(2), ramp(1301, 300));
        playout.complete(SegmentId(2));
        playout.play(SegmentId(2));
        let (first, reports) = block(&mut playout);
        assert_eq!(reports, [(SegmentId(1), PlayoutEvent::Started)]);
        let (second, reports) = block(&mut playout);
        assert_eq!(
            reports,
            [
                (SegmentId(1), PlayoutEvent::Finished(Position::from_samples(1000))),
                (SegmentId(2), PlayoutEvent::Started),
                (SegmentId(2), PlayoutEvent::Finished(Position::from_samples(600)))
            ]
        );
        let heard: Vec<i16> = first.iter().chain(second.iter()).copied().collect();
        assert_eq!(heard[..1600], ramp(1, 1600));
        assert!(heard[1600..].iter().all(|s| *s == 0));
        assert!(playout.is_silent());
    }

    #[test]
    fn short_blocks_and_long_ones_are_the_same_sound() {
        let said = |sizes: &[usize]| {
            let mut playout = with(1, ramp(1, 6_000));
            let (mut heard, mut reports) = (Vec::new(), Vec::new());
            for (n, size) in sizes.iter().cycle().enumerate() {
                let mut block = [0; BLOCK];
                playout.render(&mut block[..*size], &mut reports);
                heard.extend_from_slice(&block[..*size]);
                match heard.len() {
                    // A hold, silence, a cut: what fades is as long in both.
                    1_920 => drop(playout.hold()),
                    3_840 => playout.resume(),
                    4_800 => playout.duck(),
                    5_760 => drop(playout.cancel(E0)),
                    8_640.. => break,
                    _ => assert!(n < 100),
                }
            }
            (heard, reports)
        };
        let (long, told) = said(&[BLOCK]);
        for sizes in [&[SHORT][..], &[SHORT, SHORT, BLOCK]] {
            let (heard, reports) = said(sizes);
            let differs = heard.iter().zip(&long).position(|(a, b)| a != b);
            assert_eq!((differs, heard.len()), (None, long.len()));
            assert_eq!(reports.len(), told.len(), "a position each .1 s: {reports:?} {told:?}");
        }
    }

    #[test]
    fn what_waits_is_awaited_and_what_sounds_or_is_over_is_not() {
        let mut playout = Playout::default();
        assert!(!playout.awaits());
        playout.open(SegmentId(1), E0);
        block(&mut playout);
        assert!(playout.awaits(), "no word and no sample yet");
        playout.push(SegmentId(1), vec![5; 2_000]);
        playout.play(SegmentId(1));
        playout.complete(SegmentId(1));
        block(&mut playout);
        assert!(!playout.awaits());
        playout.hold();
        block(&mut playout);
        assert!(playout.awaits(), "it may go on at any time");
        playout.resume();
        block(&mut playout);
        block(&mut playout);
        assert!(!playout.awaits() && playout.is_silent());
    }

    #[test]
    fn a_held_piece_goes_on_at_the_sample_it_was_held_at() {
        let mut playout = with(1, ramp(1, 5000));
        block(&mut playout);
        assert_eq!(playout.hold(), Some((SegmentId(1), Position::from_samples(960))));
        let (faded, _) = block(&mut playout);
        assert!(
            faded[0] > 900 && faded[120] > 400 && faded[120] < 600,
            "fades what would have come: {} {}",
            faded[0],
            faded[120]
        );
        assert!(faded[HOLD_FADE..].iter().all(|s| *s == 0), "silent after 5 ms");
        assert!(block(&mut playout).0.iter().all(|s| *s == 0));
        playout.resume();
        let (after, _) = block(&mut playout);
        assert_eq!(
            after[HOLD_FADE..],
            ramp(961 + HOLD_FADE as i16, BLOCK - HOLD_FADE),
            "the same samples at the same places"
        );
    }

    #[test]
    fn ducking_takes_one_block_and_twelve_decibels() {
        let mut playout = with(1, vec![10_000; 4000]);
        block(&mut playout);
        playout.duck();
        let (ramped, _) = block(&mut playout);
        assert!(ramped[0] > 9_900 && ramped[BLOCK - 1] < 2_600);
        let (ducked, _) = block(&mut playout);
        assert!(ducked.iter().all(|s| (2_505..=2_515).contains(s)), "{}", ducked[0]);
        playout.unduck();
        let (risen, _) = block(&mut playout);
        assert!(risen[BLOCK - 1] > 9_900);
    }

    #[test]
    fn a_cut_fades_within_one_block_and_tells_where() {
        let mut playout = with(1, vec![10_000; 48_000]);
        block(&mut playout);
        assert_eq!(playout.cancel(E0), Some((SegmentId(1), Position::from_samples(960))));
        let (faded, reports) = block(&mut playout);
        assert!(reports.is_empty(), "a cut piece never finishes");
        assert!(faded[0] > 9_900 && faded[BLOCK / 2] < 5_100 && faded[BLOCK - 1] == 0);
        assert!(playout.is_silent());
        assert!(!playout.push(SegmentId(1), vec![1]), "late samples are not wanted");
    }

    #[test]
    fn a_cut_of_a_held_reply_ends_the_hold_and_makes_no_sound() {
        let mut playout = with(1, vec![10_000; 48_000]);
        block(&mut playout);
        playout.hold();
        block(&mut playout);
        assert_eq!(playout.cancel(E0), Some((SegmentId(1), Position::from_samples(960))));
        playout.open(SegmentId(2), Epoch(1));
        playout.push(SegmentId(2), vec![7; 960]);
        playout.play(SegmentId(2));
        assert_eq!(block(&mut playout).0[0], 7, "the next reply sounds");
    }

    #[test]
    fn a_piece_without_samples_yet_waits_and_keeps_its_position() {
        let mut playout = Playout::default();
        playout.open(SegmentId(1), E0);
        playout.play(SegmentId(1));
        assert!(block(&mut playout).1.is_empty(), "not begun");
        playout.push(SegmentId(1), vec![5; 100]);
        let late = PlayoutEvent::Stalled(Position::from_samples(100));
        assert_eq!(block(&mut playout).1, [(SegmentId(1), PlayoutEvent::Started), (SegmentId(1), late)]);
        assert!(block(&mut playout).1.is_empty(), "told once");
        assert_eq!(playout.underruns(), 2, "the rest of its first block, and the next one");
        playout.push(SegmentId(1), vec![6; 100]);
        playout.complete(SegmentId(1));
        let (out, reports) = block(&mut playout);
        assert_eq!((out[0], out[99], out[100]), (6, 6, 0));
        let (goes_on, ends) = (Position::from_samples(100), Position::from_samples(200));
        assert_eq!(
            reports,
            [(SegmentId(1), PlayoutEvent::Progress(goes_on)), (SegmentId(1), PlayoutEvent::Finished(ends))]
        );
    }

    #[test]
    fn positions_are_told_ten_times_a_second() {
        let mut playout = with(1, vec![1; 48_000]);
        let mut told = Vec::new();
        for _ in 0..20 {
            told.extend(block(&mut playout).1);
        }
        let progress: Vec<_> = told.iter().filter(|(_, e)| matches!(e, PlayoutEvent::Progress(_))).collect();
        assert_eq!(progress.len(), 4);
        // The fifth block's first sample leaves 80 ms after the first one's.
        assert_eq!(*progress[0], (SegmentId(1), PlayoutEvent::Progress(Position::from_samples(3840))));
    }
}
