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
const VAD_WINDOW: u64 = 32_000;
/// Interval of playout reports, in µs.
const PLAYOUT_REPORT_INTERVAL: u64 = 100_000;
/// Duration of a spoken word, in µs.
const WORD_DURATION: u64 = 300_000;
/// Interval of the user's turns, in µs.
const TURN_INTERVAL: u64 = 10_000_000;

const ANSWER: &str = "Of course, I can tell you that. The museum opens at nine and closes at five.";

/// Specification of these calls: the product defaults without echo warm-up, and without a maximum
/// duration.
///
/// # Panics
/// Never: the defaults are valid.
#[must_use]
pub fn call_spec() -> Spec {
    Settings { echo_warmup: 0.0, max_call_duration: None, ..Settings::product_defaults() }
        .to_spec()
        .expect("the defaults are valid")
}

/// The inputs of a call with this number of turns, one every ten seconds: a question and its
/// answer. Every fifth answer is interrupted, and every seventh is held by a cough.
#[must_use]
pub fn call_inputs(turns: u64) -> Vec<(Time, Input)> {
    let mut call = SimulatedCall::default();
    for turn in 0..turns {
        let at = turn * TURN_INTERVAL;
        call.schedule_speech(at + 500_000, 2_000_000, Some("Can you tell me when it opens?"));
        if turn % 5 == 4 {
            call.schedule_speech(at + 5_000_000, 900_000, Some("Stop, please."));
        } else if turn % 7 == 6 {
            call.schedule_speech(at + 5_000_000, 700_000, None);
        }
    }
    call.run(turns * TURN_INTERVAL);
    call.inputs
}

#[derive(Default)]
struct SimulatedCall {
    inputs: Vec<(Time, Input)>,
    scheduled: BTreeMap<(u64, u64), Input>,
    scheduled_count: u64,
    /// By segment: its epoch, and its length in µs.
    segments: BTreeMap<SegmentId, (Epoch, u64)>,
    queue: VecDeque<SegmentId>,
    /// The playing segment, when it last started or resumed, and how much of it had played by then.
    /// In µs.
    playing: Option<(SegmentId, u64, u64)>,
    is_held: bool,
}

impl SimulatedCall {
    fn schedule(&mut self, at: u64, input: Input) {
        self.scheduled.insert((at, self.scheduled_count), input);
        self.scheduled_count += 1;
    }

    /// Schedules the inputs of VAD and STT for a speech segment of the user.
    fn schedule_speech(&mut self, from: u64, lasts: u64, text: Option<&str>) {
        let (onset, end) = (Time::from_micros(from), from + lasts);
        self.schedule(from + 2 * VAD_WINDOW, Input::SpeechStarted { onset });
        for window in 2..=lasts / VAD_WINDOW {
            let until = from + window * VAD_WINDOW;
            self.schedule(until, Input::SpeechContinued { until: Time::from_micros(until) });
        }
        self.schedule(end + 250_000, Input::SpeechStopped { end: Time::from_micros(end) });
        let Some(text) = text else { return };
        for interim in 1..=lasts / 400_000 {
            self.schedule(
                from + interim * 400_000,
                Input::Transcript {
                    text: text[..4].to_owned(),
                    is_final: false,
                    trailing_interim: String::new(),
                },
            );
        }
        self.schedule(
            end + 300_000,
            Input::Transcript {
                text: text.to_owned(),
                is_final: true,
                trailing_interim: String::new(),
            },
        );
    }

    fn run(&mut self, until: u64) {
        let mut conversation = Conversation::new(call_spec());
        self.handle_input(&mut conversation, 0, Input::Start);
        loop {
            let deadline = conversation.poll_timeout().map_or(u64::MAX, |(at, _)| at.as_micros());
            let next = self.scheduled.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let now = deadline.min(next);
            if now > until {
                return;
            }
            if deadline <= next {
                self.handle_input(&mut conversation, now, Input::Tick);
            } else if let Some((_, input)) = self.scheduled.pop_first() {
                match input {
                    // Whether the segment still plays is known only at this time.
                    Input::Playout { segment, .. } => {
                        self.report_playout(&mut conversation, now, segment)
                    }
                    input => self.handle_input(&mut conversation, now, input),
                }
            }
        }
    }

    fn handle_input(&mut self, conversation: &mut Conversation, now: u64, input: Input) {
        let mut pending = VecDeque::from([input]);
        while let Some(input) = pending.pop_front() {
            self.inputs.push((Time::from_micros(now), input.clone()));
            conversation.handle(input, Time::from_micros(now));
            while let Some(output) = conversation.poll() {
                self.handle_output(now, output, &mut pending);
            }
        }
    }

    fn handle_output(&mut self, now: u64, output: Output, pending: &mut VecDeque<Input>) {
        match output {
            Output::RequestLlm(request) => {
                let llm = |event| Input::Llm { generation: request.generation, event };
                for (n, word) in (0..).zip(ANSWER.split_inclusive(' ')) {
                    self.schedule(now + 250_000 + n * 15_000, llm(LlmEvent::Text(word.to_owned())));
                }
                self.schedule(
                    now + 600_000,
                    llm(LlmEvent::End { prompt_tokens: 200, completion_tokens: 20 }),
                );
            }
            Output::CancelLlm(cancelled) => {
                self.scheduled.retain(|_, input| {
                    !matches!(
                        input,
                        Input::Llm { generation, .. } if *generation == cancelled
                    )
                });
            }
            Output::Synthesize(request) => {
                let length = request.text.split_whitespace().count() as u64 * WORD_DURATION;
                let (segment, duration) = (request.segment, position_from_micros(length));
                self.segments.insert(segment, (request.epoch, length));
                self.schedule(now + 60_000, Input::Tts { segment, event: TtsEvent::FirstAudio });
                self.schedule(
                    now + 120_000,
                    Input::Tts { segment, event: TtsEvent::End { duration } },
                );
            }
            Output::Play(segment) => {
                self.queue.push_back(segment);
                self.start_next_segment(now, pending);
            }
            Output::Hold => {
                self.is_held = true;
                self.scheduled.retain(|_, input| !matches!(input, Input::Playout { .. }));
                if let Some((segment, since, before)) = &mut self.playing {
                    *before += now - *since;
                    *since = now;
                    let event = PlayoutEvent::Progress(position_from_micros(*before));
                    pending.push_back(Input::Playout { segment: *segment, event });
                }
            }
            Output::Resume => {
                self.is_held = false;
                if let Some((segment, since, _)) = &mut self.playing {
                    *since = now;
                    let segment = *segment;
                    self.schedule_report(now, segment);
                }
                self.start_next_segment(now, pending);
            }
            Output::Cancel(epoch) => {
                let segments = &self.segments;
                let stale =
                    |segment: &SegmentId| segments.get(segment).is_some_and(|(of, _)| *of == epoch);
                self.queue.retain(|segment| !stale(segment));
                self.playing = self.playing.filter(|(segment, ..)| !stale(segment));
                self.is_held = false;
            }
            _ => {}
        }
    }

    fn start_next_segment(&mut self, now: u64, pending: &mut VecDeque<Input>) {
        if self.is_held || self.playing.is_some() {
            return;
        }
        let Some(segment) = self.queue.pop_front() else { return };
        self.playing = Some((segment, now, 0));
        pending.push_back(Input::Playout { segment, event: PlayoutEvent::Started });
        self.schedule_report(now, segment);
    }

    /// Schedules the next playout report: at the end of the segment, or after the report interval.
    fn schedule_report(&mut self, now: u64, segment: SegmentId) {
        let Some((_, since, before)) = self.playing else { return };
        let length = self.segments.get(&segment).map_or(0, |(_, length)| *length);
        let end = since + length.saturating_sub(before);
        self.schedule(
            end.min(now + PLAYOUT_REPORT_INTERVAL),
            Input::Playout { segment, event: PlayoutEvent::Started },
        );
    }

    fn report_playout(&mut self, conversation: &mut Conversation, now: u64, segment: SegmentId) {
        let Some((playing, since, before)) = self.playing else { return };
        if playing != segment || self.is_held {
            return;
        }
        let length = self.segments.get(&segment).map_or(0, |(_, length)| *length);
        let played = before + (now - since);
        if played < length {
            self.schedule_report(now, segment);
            self.handle_input(
                conversation,
                now,
                Input::Playout {
                    segment,
                    event: PlayoutEvent::Progress(position_from_micros(played)),
                },
            );
            return;
        }
        self.playing = None;
        self.handle_input(
            conversation,
            now,
            Input::Playout { segment, event: PlayoutEvent::Finished(position_from_micros(length)) },
        );
        let mut pending = VecDeque::new();
        self.start_next_segment(now, &mut pending);
        for input in pending {
            self.handle_input(conversation, now, input);
        }
    }
}

fn position_from_micros(micros: u64) -> Position {
    Position::from_samples(micros * 48 / 1_000)
}

/// Duration of such a call in real time.
#[must_use]
pub fn call_duration(turns: u64) -> Duration {
    Duration::from_micros(turns * TURN_INTERVAL)
}

/// The same call as a scenario file for `simulate`, without the coughs.
#[must_use]
pub fn scenario(turns: u64) -> String {
    let user_speech = |from: f64, lasts: f64, text: &str| {
        serde_json::json!({
            "from": from,
            "to": from + lasts,
            "text": text,
        })
    };
    let user: Vec<serde_json::Value> = (0..turns)
        .flat_map(|turn| {
            let at = (turn * TURN_INTERVAL) as f64 / 1e6;
            let question = user_speech(at + 0.5, 2.0, "Can you tell me when it opens?");
            let interruption = (turn % 5 == 4).then(|| user_speech(at + 5.0, 0.9, "Stop, please."));
            core::iter::once(question).chain(interruption)
        })
        .collect();
    let replies = serde_json::json!([{
        "to": "*",
        "say": ANSWER,
        "audio": ANSWER.split_whitespace().count() as f64 * 0.3,
    }]);
    serde_json::json!({
        "user": user,
        "replies": replies,
        "until": call_duration(turns).as_secs_f64(),
    })
    .to_string()
}
