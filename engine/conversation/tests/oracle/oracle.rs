//! Compares the state machine with the naive oracle, for one call.

mod agent_speech;
mod barge_in;
pub(crate) mod case;
mod heard_text;
mod lifecycle;
pub(crate) mod parse_case;
mod predict;
pub(crate) mod random_case;
mod record;
mod shrink;
mod turn;
mod user_input;

use case::Case;
use conversation::simulate::simulate;
use serde_json::{Map, Value, json};

/// The expected lines.
pub(crate) fn expected_lines(case: &Case) -> Vec<String> {
    let lines = predict::predict(case).into_iter().map(|(at, line)| {
        let t = ((at as f64 / 1e6) * 1e3).round() / 1e3;
        let mut whole = Map::from_iter([("t".to_owned(), json!(t))]);
        if let Value::Object(line) = line {
            whole.extend(line);
        }
        Value::Object(whole).to_string()
    });
    lines.collect()
}

fn printed_lines(case: &Case) -> Vec<String> {
    match simulate(case.json().as_bytes(), false) {
        Ok(lines) => lines.lines().map(str::to_owned).collect(),
        Err(bad) => vec![bad.to_string()],
    }
}

/// The result of a comparison.
pub(crate) struct Outcome {
    /// Approximate number of inputs of the state machine: those of the user and the commands, and
    /// two for each of its requests.
    pub(crate) inputs: usize,
    /// The printed lines.
    pub(crate) lines: Vec<String>,
    /// The difference, if any: the smallest call that shows it, with the lines of both sides.
    pub(crate) report: Option<String>,
}

/// Runs the call and compares.
pub(crate) fn compare(case: &Case) -> Outcome {
    let lines = printed_lines(case);
    let user: usize = case.user.iter().map(|item| 4 + 2 * usize::from(item.text.is_some())).sum();
    let requests = lines.iter().filter(|line| line.contains(".started\"")).count();
    let report = (lines != expected_lines(case)).then(|| {
        let case = shrink::shrink(case.clone(), |case| printed_lines(case) != expected_lines(case));
        let (machine, oracle) = (printed_lines(&case), expected_lines(&case));
        let at = machine.iter().zip(&oracle).position(|(a, b)| a != b);
        let at = at.unwrap_or(machine.len().min(oracle.len()));
        let mark = |lines: &[String]| {
            let lines = lines.iter().enumerate();
            lines
                .map(|(n, line)| format!("{} {line}\n", if n == at { ">" } else { " " }))
                .collect::<String>()
        };
        format!("{}\nmachine\n{}oracle\n{}", case.json(), mark(&machine), mark(&oracle))
    });
    Outcome { inputs: user + case.actions.len() + 2 * requests, lines, report }
}

/// The call that these bytes choose agrees with the oracle.
///
/// # Panics
/// It does not agree; the message contains the smallest call that shows it.
pub(crate) fn assert_agrees(bytes: &[u8]) {
    if bytes.len() <= 1 << 12
        && let Some(report) =
            compare(&random_case::random_case(random_case::Random::from_bytes(bytes))).report
    {
        panic!("{report}");
    }
}
