//! Viterbi decoder: from the network's scores of each frame to phones of plausible length. It
//! follows the best path through all frames and returns each frame's class a few frames later. As
//! in `scripts/lips/decode.py`.

use super::network::{MAX_MIN_FRAMES, Network};

/// Decoder of one stream. A state is a class and the number of its frames so far, up to its minimum
/// duration.
pub(super) struct ViterbiDecoder {
    classes: usize,
    /// Score of the best path into each state, `-inf` if there is none: [passed][class].
    scores: Vec<f32>,
    next_scores: Vec<f32>,
    /// For each recent frame, the predecessor of each state: a ring of `lag` frames.
    backpointers: Vec<Vec<u8>>,
    lag: usize,
    frames: usize,
}

impl ViterbiDecoder {
    pub(super) fn new(network: &Network) -> Self {
        let states = MAX_MIN_FRAMES * network.classes();
        Self {
            classes: network.classes(),
            scores: vec![f32::NEG_INFINITY; states],
            next_scores: vec![f32::NEG_INFINITY; states],
            backpointers: vec![vec![0; states]; network.lag().max(1)],
            lag: network.lag(),
            frames: 0,
        }
    }

    /// Takes the logits of the next frame. Returns the class of the frame [`Network::lag`] frames
    /// before it.
    pub(super) fn push(&mut self, network: &Network, logits: &[f32]) -> Option<u8> {
        let score = |class: usize| logits[class] + network.logit_offsets[class];
        if self.frames == 0 {
            for class in 0..self.classes {
                self.scores[class] = score(class);
            }
        } else {
            let slot = self.frames % self.backpointers.len();
            let mut back = std::mem::take(&mut self.backpointers[slot]);
            self.transition(network, &mut back);
            for class in 0..self.classes {
                let here = score(class);
                for passed in 0..usize::from(network.min_frames[class]) {
                    self.next_scores[passed * self.classes + class] += here;
                }
            }
            self.backpointers[slot] = back;
            std::mem::swap(&mut self.scores, &mut self.next_scores);
            // Only differences matter. Without this, scores would grow with the length of the
            // speech.
            let best = self.scores[self.best_state()];
            self.scores.iter_mut().for_each(|s| *s -= best);
        }
        self.frames += 1;
        (self.frames > self.lag).then(|| self.backtrack(self.lag))
    }

    /// Transition from all states to those of the next frame, without the score of that frame.
    fn transition(&mut self, network: &Network, back: &mut [u8]) {
        let classes = self.classes;
        self.next_scores.fill(f32::NEG_INFINITY);
        let last = |class: usize| (usize::from(network.min_frames[class]) - 1) * classes + class;
        for from in 0..classes {
            let ends = self.scores[last(from)];
            if ends == f32::NEG_INFINITY {
                continue;
            }
            let moves = &network.transitions[from * classes..][..classes];
            for (to, cost) in moves.iter().enumerate() {
                if to != from && ends + cost > self.next_scores[to] {
                    self.next_scores[to] = ends + cost;
                    back[to] = last(from) as u8;
                }
            }
        }
        for passed in 1..MAX_MIN_FRAMES {
            for class in 0..classes {
                if passed < usize::from(network.min_frames[class]) {
                    let (before, here) = ((passed - 1) * classes + class, passed * classes + class);
                    self.next_scores[here] = self.scores[before];
                    back[here] = before as u8;
                }
            }
        }
        for class in 0..classes {
            let here = last(class);
            let stay = self.scores[here] + network.transitions[class * classes + class];
            if stay > self.next_scores[here] {
                self.next_scores[here] = stay;
                back[here] = here as u8;
            }
        }
    }

    /// Ends the segment: the classes of the remaining frames.
    pub(super) fn finish(&self) -> Vec<u8> {
        (0..self.frames.min(self.lag)).rev().map(|ago| self.backtrack(ago)).collect()
    }

    fn best_state(&self) -> usize {
        let mut best = 0;
        for (state, score) in self.scores.iter().enumerate() {
            if *score > self.scores[best] {
                best = state;
            }
        }
        best
    }

    /// The class that the current best path had `ago` frames before the last one.
    fn backtrack(&self, ago: usize) -> u8 {
        let mut state = self.best_state();
        for n in 0..ago {
            state = usize::from(
                self.backpointers[(self.frames - 1 - n) % self.backpointers.len()][state],
            );
        }
        (state % self.classes) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes frames of the given classes, with logits of this clarity.
    fn decode_frames(frames: &[u8], clearly: f32) -> Vec<u8> {
        let network = Network::built_in();
        let mut decoder = ViterbiDecoder::new(network);
        let mut out = Vec::new();
        for class in frames {
            let mut logits: Vec<f32> = network.logit_offsets.iter().map(|o| -o).collect();
            logits[usize::from(*class)] += clearly;
            out.extend(decoder.push(network, &logits));
        }
        out.extend(decoder.finish());
        out
    }

    #[test]
    fn unambiguous_frames_keep_their_phone() {
        let frames = [vec![0; 10], vec![10; 8], vec![1; 6], vec![14; 7], vec![0; 9]].concat();
        assert_eq!(decode_frames(&frames, 30.0), frames);
        for short in [0, 1, 3, 5] {
            assert_eq!(decode_frames(&vec![2; short], 30.0), vec![2; short]);
        }
    }

    #[test]
    fn a_single_frame_between_others_is_no_phone() {
        let mut frames = vec![10; 20];
        frames[9] = 8;
        assert_eq!(decode_frames(&frames, 4.0), vec![10; 20]);
    }

    #[test]
    fn numbers_stay_small_however_long_it_lasts() {
        let network = Network::built_in();
        let mut decoder = ViterbiDecoder::new(network);
        let logits = vec![900.0; network.classes()];
        for _ in 0..10_000 {
            decoder.push(network, &logits);
        }
        assert!(decoder.scores.iter().all(|s| s.is_infinite() || s.abs() < 10_000.0));
    }
}
