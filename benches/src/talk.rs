//! A call without its models: the inputs that a media thread gives to its conversation, at the same
//! rate.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use conversation::conversation::Conversation;
use conversation::input::{Epoch, Input, LlmEvent, PlayoutEvent, SegmentId, TtsEvent};
use conversation::output::Output;
use conversation::settings::Settings;
use conversation::spec::Spec;
use conversation::time::{Position, Time};

/// A VAD window, in µs.
const WINDOW: u64 = 32_000;
/// Interval of playout reports, in µs.
const REPORT: u64 = 100_000;
/// Duration of a spoken word, in µs.
const WORD: u64 = 300_000;
/// Interval of the user's turns, in µs.
const TURN: u64 = 10_000_000;

const ANSWER: &str = "Of course, I can tell you that. The museum opens at nine and closes at five.";

/// Specification of these calls: the product defaults without echo warm-up, and without a maximum
/// duration.
///
/// # Panics
/// Never: the defaults are valid.
#[must_use]
pub fn spec() -> Spec {
    Settings { echo_warmup: 0.0, max_call_duration: None, ..Settings::product_defaults() }
        .to_spec()
        .expect("the defaults are valid")
}

/// The inputs of a call with this number of turns, one every ten seconds: a question and its
/// answer. Every fifth answer is interrupted, and every seventh is held by a cough.
#[must_use]
pub fn inputs(turns: u64) -> Vec<(Time, Input)> {
    let mut talk = Talk::default();
    for turn in 0..turns {
        let at = turn * TURN;
        talk.speech(at + 500_000, 2_000_000, Some("Can you tell me when it opens?"));
        if turn % 5 == 4 {
            talk.speech(at + 5_000_000, 900_000, Some("Stop, please."));
        } else if turn % 7 == 6 {
            talk.speech(at + 5_000_000, 700_000, None);
        }
    }
    talk.play(turns * TURN);
    talk.inputs
}

#[derive(Default)]
struct Talk {
    inputs: Vec<(Time, Input)>,
    due: BTreeMap<(u64, u64), Input>,
    count: u64,
    /// By segment: its epoch, and its length in µs.
    pieces: BTreeMap<SegmentId, (Epoch, u64)>,
    queue: VecDeque<SegmentId>,
    /// The playing segment, when it last started or resumed, and how much of it had played by then.
    /// In µs.
    sounding: Option<(SegmentId, u64, u64)>,
    held: bool,
}

impl Talk {
    fn at(&mut self, at: u64, input: Input) {
        self.due.insert((at, self.count), input);
        self.count += 1;
    }

    /// Schedules the inputs of VAD and STT for a speech segment of the user.
    fn speech(&mut self, from: u64, lasts: u64, text: Option<&str>) {
        let (onset, end) = (Time::from_micros(from), from + lasts);
        self.at(from + 2 * WINDOW, Input::SpeechStarted { onset });
        for window in 2..=lasts / WINDOW {
            let until = from + window * WINDOW;
            self.at(until, Input::SpeechContinued { until: Time::from_micros(until) });
        }
        self.at(end + 250_000, Input::SpeechStopped { end: Time::from_micros(end) });
        let Some(text) = text else { return };
        for interim in 1..=lasts / 400_000 {
            self.at(
                from + interim * 400_000,
                Input::Transcript {
                    text: text[..4].to_owned(),
                    is_final: false,
                    trailing_interim: String::new(),
                },
            );
        }
        self.at(
            end + 300_000,
            Input::Transcript { text: text.to_owned(), is_final: true, trailing_interim: String::new() },
        );
    }

    fn play(&mut self, until: u64) {
        let mut conversation = Conversation::new(spec());
        self.give(&mut conversation, 0, Input::Start);
        loop {
            let deadline = conversation.poll_timeout().map_or(u64::MAX, |(at, _)| at.as_micros());
            let next = self.due.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let now = deadline.min(next);
            if now > until {
                return;
            }
            if deadline <= next {
                self.give(&mut conversation, now, Input::Tick);
            } else if let Some((_, input)) = self.due.pop_first() {
                match input {
                    // Whether the segment still plays is known only at this time.
                    Input::Playout { segment: piece, .. } => self.report(&mut conversation, now, piece),
                    input => self.give(&mut conversation, now, input),
                }
            }
        }
    }

    fn give(&mut self, conversation: &mut Conversation, now: u64, input: Input) {
        let mut at_once = VecDeque::from([input]);
        while let Some(input) = at_once.pop_front() {
            self.inputs.push((Time::from_micros(now), input.clone()));
            conversation.handle(input, Time::from_micros(now));
            while let Some(output) = conversation.poll() {
                self.act(now, output, &mut at_once);
            }
        }
    }

    fn act(&mut self, now: u64, output: Output, at_once: &mut VecDeque<Input>) {
        match output {
            Output::RequestLlm(request) => {
                let llm = |event| Input::Llm { generation: request.generation, event };
                for (n, word) in (0..).zip(ANSWER.split_inclusive(' ')) {
                    self.at(now + 250_000 + n * 15_000, llm(LlmEvent::Text(word.to_owned())));
                }
                self.at(now + 600_000, llm(LlmEvent::End { prompt_tokens: 200, completion_tokens: 20 }));
            }
            Output::CancelLlm(asked) => {
                self.due.retain(
                    |_, input| !matches!(input, Input::Llm { generation: step, .. } if *step == asked),
                );
            }
            Output::Synthesize(request) => {
                let length = request.text.split_whitespace().count() as u64 * WORD;
                let (piece, duration) = (request.segment, position(length));
                self.pieces.insert(piece, (request.epoch, length));
                self.at(now + 60_000, Input::Tts { segment: piece, event: TtsEvent::FirstAudio });
                self.at(now + 120_000, Input::Tts { segment: piece, event: TtsEvent::End { duration } });
            }
            Output::Play(piece) => {
                self.queue.push_back(piece);
                self.start(now, at_once);
            }
            Output::Hold => {
                self.held = true;
                self.due.retain(|_, input| !matches!(input, Input::Playout { .. }));
                if let Some((piece, since, before)) = &mut self.sounding {
                    *before += now - *since;
                    *since = now;
                    let event = PlayoutEvent::Progress(position(*before));
                    at_once.push_back(Input::Playout { segment: *piece, event });
                }
            }
            Output::Resume => {
                self.held = false;
                if let Some((piece, since, _)) = &mut self.sounding {
                    *since = now;
                    let piece = *piece;
                    self.look(now, piece);
                }
                self.start(now, at_once);
            }
            Output::Cancel(epoch) => {
                let pieces = &self.pieces;
                let stale = |piece: &SegmentId| pieces.get(piece).is_some_and(|(of, _)| *of == epoch);
                self.queue.retain(|piece| !stale(piece));
                self.sounding = self.sounding.filter(|(piece, ..)| !stale(piece));
                self.held = false;
            }
            _ => {}
        }
    }

    fn start(&mut self, now: u64, at_once: &mut VecDeque<Input>) {
        if self.held || self.sounding.is_some() {
            return;
        }
        let Some(piece) = self.queue.pop_front() else { return };
        self.sounding = Some((piece, now, 0));
        at_once.push_back(Input::Playout { segment: piece, event: PlayoutEvent::Started });
        self.look(now, piece);
    }

    /// Schedules the next playout report: at the end of the segment, or after the report interval.
    fn look(&mut self, now: u64, piece: SegmentId) {
        let Some((_, since, before)) = self.sounding else { return };
        let length = self.pieces.get(&piece).map_or(0, |(_, length)| *length);
        let end = since + length.saturating_sub(before);
        self.at(end.min(now + REPORT), Input::Playout { segment: piece, event: PlayoutEvent::Started });
    }

    fn report(&mut self, conversation: &mut Conversation, now: u64, piece: SegmentId) {
        let Some((sounding, since, before)) = self.sounding else { return };
        if sounding != piece || self.held {
            return;
        }
        let length = self.pieces.get(&piece).map_or(0, |(_, length)| *length);
        let gone = before + (now - since);
        if gone < length {
            self.look(now, piece);
            self.give(
                conversation,
                now,
                Input::Playout { segment: piece, event: PlayoutEvent::Progress(position(gone)) },
            );
            return;
        }
        self.sounding = None;
        self.give(
            conversation,
            now,
            Input::Playout { segment: piece, event: PlayoutEvent::Finished(position(length)) },
        );
        let mut at_once = VecDeque::new();
        self.start(now, &mut at_once);
        for input in at_once {
            self.give(conversation, now, input);
        }
    }
}

fn position(micros: u64) -> Position {
    Position::from_samples(micros * 48 / 1_000)
}

/// Duration of such a call in real time.
#[must_use]
pub fn length(turns: u64) -> Duration {
    Duration::from_micros(turns * TURN)
}

/// The same call as a scenario file for `simulate`, without the coughs.
#[must_use]
pub fn scenario(turns: u64) -> String {
    let said = |from: f64, lasts: f64, text: &str| serde_json::json!({"from": from, "to": from + lasts, "text": text});
    let user: Vec<serde_json::Value> = (0..turns)
        .flat_map(|turn| {
            let at = (turn * TURN) as f64 / 1e6;
            let question = said(at + 0.5, 2.0, "Can you tell me when it opens?");
            let over = (turn % 5 == 4).then(|| said(at + 5.0, 0.9, "Stop, please."));
            core::iter::once(question).chain(over)
        })
        .collect();
    let replies = serde_json::json!([{"to": "*", "say": ANSWER, "audio": ANSWER.split_whitespace().count() as f64 * 0.3}]);
    serde_json::json!({"user": user, "replies": replies, "until": length(turns).as_secs_f64()}).to_string()
}
