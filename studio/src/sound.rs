//! The sound of a video: samples at their positions, and silence between them.

use std::collections::VecDeque;

/// Sound that is read from its start to its end, while further parts are added.
#[derive(Default)]
pub(crate) struct Sound {
    /// Parts with their positions, in order and without overlap.
    parts: VecDeque<(u64, Vec<i16>)>,
    /// Number of samples that were read.
    position: u64,
}

impl Sound {
    /// Number of samples that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Adds a part. It begins neither before the end of the last part nor before
    /// [`Self::position`].
    pub(crate) fn push(&mut self, start: u64, samples: Vec<i16>) {
        debug_assert!(start >= self.position);
        if !samples.is_empty() {
            self.parts.push_back((start, samples));
        }
    }

    /// Fills `out` with the samples up to a position.
    pub(crate) fn read(&mut self, until: u64, out: &mut Vec<i16>) {
        out.clear();
        out.resize(index(until.saturating_sub(self.position)), 0);
        for (start, part) in &self.parts {
            let end = start + part.len() as u64;
            let (from, to) = (self.position.max(*start), until.min(end));
            if from < to {
                let source = &part[index(from - start)..index(to - start)];
                out[index(from - self.position)..index(to - self.position)].copy_from_slice(source);
            }
        }
        self.position = self.position.max(until);
        let position = self.position;
        while self
            .parts
            .pop_front_if(|(start, part)| *start + part.len() as u64 <= position)
            .is_some()
        {}
    }
}

fn index(samples: u64) -> usize {
    usize::try_from(samples).unwrap_or(usize::MAX)
}
