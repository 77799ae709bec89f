//! Correctness of turns: compares the turns that the server committed with the utterances.

use serde::Serialize;

use crate::workload::Workload;

/// Utterances that end within this time before the end of a call are not judged, in s: their
/// answers may not have arrived.
pub(crate) const UNJUDGED_TAIL: f64 = 2.0;

/// Results of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TurnStats {
    /// Number of completed utterances.
    pub(crate) expected: usize,
    /// Number committed once, with exactly their words.
    pub(crate) right: usize,
    /// Number committed with other words, or without an utterance.
    pub(crate) wrong: usize,
    /// Number of utterances that were not committed.
    pub(crate) missing: usize,
    /// Number of utterances that no agent audio followed.
    pub(crate) unanswered: usize,
}

impl TurnStats {
    /// Adds the results of another call.
    pub(crate) fn add(&mut self, other: Self) {
        self.expected += other.expected;
        self.right += other.right;
        self.wrong += other.wrong;
        self.missing += other.missing;
        self.unanswered += other.unanswered;
    }
}

/// Compares the turns of one call by an alignment with the minimum number of differences.
/// `expected`: utterances that must be committed. `late`: an utterance so close to the end that it
/// may or may not be committed.
#[must_use]
pub(crate) fn compare_turns(
    expected: &[&str],
    late: Option<&str>,
    committed: &[String],
) -> TurnStats {
    let committed = match (late, committed.split_last()) {
        (Some(late), Some((last, rest))) if last == late && committed.len() > expected.len() => {
            rest
        }
        _ => committed,
    };
    let (rows, columns) = (expected.len() + 1, committed.len() + 1);
    // Minimum cost of the remaining alignment, computed from the end. Every difference costs one.
    let mut cost = vec![0_usize; rows * columns];
    let at = |i: usize, j: usize| i * columns + j;
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            cost[at(i, j)] = if i == rows - 1 {
                columns - 1 - j
            } else if j == columns - 1 {
                rows - 1 - i
            } else {
                let differs = usize::from(expected[i] != committed[j]);
                (cost[at(i + 1, j + 1)] + differs)
                    .min(cost[at(i + 1, j)] + 1)
                    .min(cost[at(i, j + 1)] + 1)
            };
        }
    }
    let mut turns = TurnStats { expected: expected.len(), ..TurnStats::default() };
    let (mut i, mut j) = (0, 0);
    while i < expected.len() || j < committed.len() {
        let here = cost[at(i, j)];
        if i < expected.len() && j < committed.len() {
            let differs = usize::from(expected[i] != committed[j]);
            if here == cost[at(i + 1, j + 1)] + differs {
                turns.right += 1 - differs;
                turns.wrong += differs;
                (i, j) = (i + 1, j + 1);
                continue;
            }
        }
        if i < expected.len() && here == cost[at(i + 1, j)] + 1 {
            turns.missing += 1;
            i += 1;
        } else {
            turns.wrong += 1;
            j += 1;
        }
    }
    turns
}

/// Evaluates the turns of a call that lasted `duration` s.
pub(crate) fn evaluate_turns(
    workload: &Workload,
    duration: f64,
    committed: &[String],
) -> TurnStats {
    let mut expected: Vec<&str> = Vec::new();
    let mut late = None;
    for n in 0.. {
        let utterance = workload.spoken_utterance(n);
        if utterance.end <= duration - UNJUDGED_TAIL {
            expected.push(&utterance.utterance.transcript);
        } else {
            late = (utterance.onset <= duration).then_some(&*utterance.utterance.transcript);
            break;
        }
    }
    compare_turns(&expected, late, committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare_counts(expected: &[&str], late: Option<&str>, committed: &[&str]) -> [usize; 4] {
        let committed: Vec<String> = committed.iter().map(ToString::to_string).collect();
        let turns = compare_turns(expected, late, &committed);
        [turns.expected, turns.right, turns.wrong, turns.missing]
    }

    #[test]
    fn each_difference_counts_once() {
        assert_eq!(compare_counts(&["a", "b", "c"], None, &["a", "b", "c"]), [3, 3, 0, 0]);
        assert_eq!(compare_counts(&["a", "b", "c"], None, &["a", "c"]), [3, 2, 0, 1]);
        assert_eq!(compare_counts(&["a", "b", "c"], None, &["a", "x", "c"]), [3, 2, 1, 0]);
        assert_eq!(compare_counts(&["a", "b"], None, &["a", "a", "b"]), [2, 2, 1, 0]);
        assert_eq!(compare_counts(&["a", "b"], None, &[]), [2, 0, 0, 2]);
        assert_eq!(compare_counts(&[], None, &["a"]), [0, 0, 1, 0]);
    }

    #[test]
    fn the_last_transcript_is_optional() {
        assert_eq!(compare_counts(&["a"], Some("b"), &["a", "b"]), [1, 1, 0, 0]);
        assert_eq!(compare_counts(&["a"], Some("b"), &["a"]), [1, 1, 0, 0]);
        assert_eq!(compare_counts(&["a"], Some("b"), &["a", "x"]), [1, 1, 1, 0]);
    }

    #[test]
    fn turns_too_close_to_the_end_are_not_expected() {
        let workload = Workload::built_in().unwrap();
        let texts: Vec<String> = workload.utterances.iter().map(|u| u.transcript.clone()).collect();
        // The first ends at 3.1 s, the second at 8.45 s.
        let of = |whole: f64, n: usize| evaluate_turns(&workload, whole, &texts[..n]);
        assert_eq!(
            of(5.2, 1),
            TurnStats { expected: 1, right: 1, wrong: 0, missing: 0, unanswered: 0 }
        );
        assert_eq!(
            of(9.0, 2),
            TurnStats { expected: 1, right: 1, wrong: 0, missing: 0, unanswered: 0 }
        );
        assert_eq!(
            of(9.0, 1),
            TurnStats { expected: 1, right: 1, wrong: 0, missing: 0, unanswered: 0 }
        );
        assert_eq!(
            of(11.0, 1),
            TurnStats { expected: 2, right: 1, wrong: 0, missing: 1, unanswered: 0 }
        );
        assert_eq!(of(1.0, 0), TurnStats::default());
    }
}
