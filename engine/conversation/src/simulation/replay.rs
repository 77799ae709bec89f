//! Replays a call from its trace ([`crate::simulation::trace`]) and verifies it: every output is
//! compared byte for byte with the output of the live call.
//!
//! The caller passes one line at a time, so a trace of any size needs no more memory than its
//! conversation.

use core::fmt;

use serde_json::value::RawValue;

use crate::contract::input::Input;
use crate::contract::output::Output;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::simulation::report::Report;
use crate::simulation::strict_json::to_single_line;
use crate::simulation::trace::{self, FieldError, MAX_LINE_BYTES, PROGRAM_VERSION, TraceLine};

/// More deadlines than a live driver leaves unprocessed between two inputs.
const MAX_DEADLINES_PER_INPUT: u32 = 10_000;

/// A trace is malformed: the line, the field and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Number of the line, from 1.
    pub line: u64,
    /// Path of the field, such as `input.SpeechStarted.onset`; empty for the line as a whole.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, field, reason } = self;
        if field.is_empty() {
            write!(f, "line {line}: {reason}")
        } else {
            write!(f, "line {line}: {field}: {reason}")
        }
    }
}

impl core::error::Error for TraceError {}

/// The result of the comparison with the live call. Displayed as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every output is the same, from the start to the end of the call.
    Identical {
        /// Number of inputs.
        inputs: u64,
        /// Number of outputs.
        outputs: u64,
    },
    /// Every output is the same, but the trace ends before the call does: the server was killed, or
    /// the call is still running.
    Truncated {
        /// Number of lines that were replayed.
        line: u64,
        /// Conversation time of the last one.
        at: Time,
    },
    /// Every output is the same up to this line, where inputs are missing.
    Gap {
        /// Number of the line.
        line: u64,
        /// Number of missing inputs.
        missing: u64,
    },
    /// An output differs from the live call's.
    Differs(Box<Difference>),
}

/// The first output that differs from the live call's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Line of the input.
    pub line: u64,
    /// Time of the input.
    pub at: Time,
    /// Number of the output of this input, from 1.
    pub output: usize,
    /// The live call's output as JSON; `None` = the live call had no further output.
    pub live: Option<String>,
    /// The replay's output as JSON; `None` = no further output.
    pub replayed: Option<String>,
    /// Version of the program that ran the call.
    pub program_version: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical { inputs, outputs } => {
                write!(
                    f,
                    "identical: {inputs} inputs gave the {outputs} outputs of the live call, \
                     byte for byte"
                )
            }
            Self::Truncated { line, at } => write!(
                f,
                "identical up to the end of the trace: it is truncated after line {line} ({at}), \
                 before the end of the call"
            ),
            Self::Gap { line, missing } => write!(
                f,
                "identical up to line {line}: {missing} inputs are missing there because the disk \
                 was too slow, and the rest cannot be replayed"
            ),
            Self::Differs(d) => {
                let Difference { line, at, output, live, replayed, program_version: program } =
                    &**d;
                write!(
                    f,
                    "line {line} ({at}) differs: output {output} is {} in the live call, ",
                    abbreviate(live.as_deref())
                )?;
                write!(f, "and {} in the replay", abbreviate(replayed.as_deref()))?;
                if program == PROGRAM_VERSION {
                    Ok(())
                } else {
                    write!(f, " (the call ran on version {program}, this is {PROGRAM_VERSION})")
                }
            }
        }
    }
}

/// Shortens an output for a sentence.
fn abbreviate(output: Option<&str>) -> String {
    const MAX_CHARS: usize = 300;
    let Some(text) = output else { return "absent".into() };
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A replay in progress.
pub struct Replay {
    explain: bool,
    call: Option<ReplayedCall>,
    report: Report,
    /// Number of lines read.
    line_number: u64,
    verdict: Option<Verdict>,
}

struct ReplayedCall {
    program_version: String,
    conversation: Conversation,
    at: Time,
    inputs: u64,
    outputs: u64,
    ended: bool,
}

impl Replay {
    /// Creates a replay. With `explain` it prints the reason of each decision.
    #[must_use]
    pub fn new(explain: bool) -> Self {
        Self { explain, call: None, report: Report::default(), line_number: 0, verdict: None }
    }

    /// Reads the next line, without its newline, and returns what it prints. After a verdict
    /// further lines are ignored.
    ///
    /// # Errors
    /// The line is malformed.
    pub fn read_line(&mut self, line: &[u8]) -> Result<String, TraceError> {
        if self.verdict.is_none() {
            self.line_number += 1;
            self.process_line(line).map_err(|(field, reason)| TraceError {
                line: self.line_number,
                field: to_single_line(field),
                reason: to_single_line(reason),
            })?;
        }
        Ok(self.report.take())
    }

    /// Reads the rest after the last newline: a complete line, or the part that was written before
    /// the server was killed.
    ///
    /// # Errors
    /// The line is complete but malformed.
    pub fn read_partial_line(&mut self, rest: &[u8]) -> Result<String, TraceError> {
        // A truncated line is valid up to its end, which may be inside a number or a character.
        let cut = match core::str::from_utf8(rest) {
            Ok(text) => serde_json::from_str::<&RawValue>(text)
                .is_err_and(|error| error.is_eof() || error.column() >= rest.len()),
            Err(error) => error.error_len().is_none(),
        };
        if self.call.is_some() && cut { Ok(String::new()) } else { self.read_line(rest) }
    }

    /// Whether there is a verdict, so that no further line is needed.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.verdict.is_some()
    }

    /// Returns the summary as the last line, and the verdict.
    ///
    /// # Errors
    /// The trace is empty.
    pub fn finish(mut self) -> Result<(String, Verdict), TraceError> {
        let Some(call) = self.call else {
            return Err(TraceError {
                line: 1,
                field: String::new(),
                reason: "is missing: the file is empty".into(),
            });
        };
        self.report.push_summary(call.at, &call.conversation);
        let verdict = self.verdict.unwrap_or(if call.ended {
            Verdict::Identical { inputs: call.inputs, outputs: call.outputs }
        } else {
            Verdict::Truncated { line: self.line_number, at: call.at }
        });
        Ok((self.report.take(), verdict))
    }

    fn process_line(&mut self, line: &[u8]) -> Result<(), FieldError> {
        let bad = |reason: &str| (String::new(), reason.to_owned());
        if line.len() > MAX_LINE_BYTES {
            return Err(bad("is longer than 4 MiB"));
        }
        let text = core::str::from_utf8(line).map_err(|_| bad("is not UTF-8"))?;
        let Some(call) = &mut self.call else {
            let begin = trace::read_header(text)?;
            let mut conversation = Conversation::new(begin.spec);
            conversation.set_explain(self.explain);
            self.call = Some(ReplayedCall {
                program_version: begin.program_version,
                conversation,
                at: Time::ZERO,
                inputs: 0,
                outputs: 0,
                ended: false,
            });
            return Ok(());
        };
        match trace::read_line(text)? {
            TraceLine::Step { at, .. } if at < call.at => Err((
                "at".into(),
                format!("is {} µs, which is earlier than the previous line", at.as_micros()),
            )),
            TraceLine::Step { at, input, outputs: out } => {
                self.verdict =
                    call.replay_input(&mut self.report, self.line_number, at, input, &out)?;
                Ok(())
            }
            TraceLine::Dropped(missing) => {
                self.verdict = Some(Verdict::Gap { line: self.line_number, missing });
                Ok(())
            }
        }
    }
}

impl ReplayedCall {
    /// Passes an input to the conversation and compares all outputs that follow.
    ///
    /// Earlier deadlines are processed one by one. The outputs are the same, but the work per step
    /// is bounded: a file may leave 1e7 s (about 116 days) between two inputs, and ask for
    /// unlimited speech in between. The replay stops at the first output that the file does not
    /// have.
    fn replay_input(
        &mut self,
        report: &mut Report,
        line: u64,
        at: Time,
        input: Input,
        live: &[&RawValue],
    ) -> Result<Option<Verdict>, FieldError> {
        self.at = at;
        self.inputs += 1;
        let mut comparison = Comparison { live, compared: 0, difference: None };
        if self.inputs == 1 {
            self.conversation.handle(Input::Tick, Time::ZERO);
            self.compare_outputs(report, &mut comparison);
        }
        let mut served = 0;
        while let Some((due, _)) = self.conversation.poll_timeout().filter(|(due, _)| *due < at)
            && comparison.difference.is_none()
        {
            if served == MAX_DEADLINES_PER_INPUT {
                let reason = format!(
                    "leaves more than {MAX_DEADLINES_PER_INPUT} deadlines unprocessed since the \
                     previous line"
                );
                return Err(("at".into(), reason));
            }
            served += 1;
            self.conversation.handle(Input::Tick, due);
            self.compare_outputs(report, &mut comparison);
        }
        if comparison.difference.is_none() {
            self.conversation.handle(input, at);
            self.compare_outputs(report, &mut comparison);
            comparison.compare_end();
        }
        let program = self.program_version.clone();
        Ok(comparison.difference.map(|(output, live, replayed)| {
            Verdict::Differs(Box::new(Difference {
                line,
                at,
                output,
                live,
                replayed,
                program_version: program,
            }))
        }))
    }

    /// Prints and compares the outputs of the conversation.
    fn compare_outputs(&mut self, report: &mut Report, comparison: &mut Comparison<'_>) {
        while let Some(replayed) = self.conversation.poll() {
            if let Output::Explain(explanation) = replayed {
                report.push_explanation(&explanation);
                continue;
            }
            self.outputs += 1;
            comparison.compare_next(&replayed);
            match replayed {
                Output::Emit(envelope) => report.push_event(envelope),
                Output::End(_) => self.ended = true,
                _ => {}
            }
        }
    }
}

/// The outputs of one input, live and replayed.
struct Comparison<'a> {
    live: &'a [&'a RawValue],
    compared: usize,
    /// The first difference: the number of the output from 1, the live output and the replayed one.
    difference: Option<(usize, Option<String>, Option<String>)>,
}

impl Comparison<'_> {
    /// Compares the next output of the replay.
    fn compare_next(&mut self, replayed: &Output) {
        if self.difference.is_none() {
            self.compare(Some(trace::output_json(replayed)));
        }
    }

    /// Checks that the live call has no further output.
    fn compare_end(&mut self) {
        if self.difference.is_none() && self.compared < self.live.len() {
            self.compare(None);
        }
    }

    fn compare(&mut self, replayed: Option<String>) {
        let live = self.live.get(self.compared).map(|output| output.get());
        self.compared += 1;
        if live != replayed.as_deref() {
            self.difference = Some((self.compared, live.map(str::to_owned), replayed));
        }
    }
}
