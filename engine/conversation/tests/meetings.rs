//! An eight-minute meeting of three people in simulated time: which sentences the agent answers, in
//! each mode, with and without reports of who speaks.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::simulate::simulate;
use serde_json::{Value, json};

const PEOPLE: [&str; 3] = ["Maria", "Tom", "Jonas"];

/// Sentences to the agent, which is called Clara.
const QUESTIONS: [&str; 12] = [
    "Clara, what did we spend on travel last month?",
    "What do you think about it, Clara?",
    "Okay Clara, please give us the date of the fair.",
    "Clara can you tell us how many people signed up?",
    "Hey Clara, is the contract signed?",
    "Could you look up the address, Clara?",
    "Clara, who is the contact at the agency?",
    "Clara what is the name of the hotel?",
    "And how long is the warranty, Clara?",
    "Klara, how many boxes are left?",
    "Clara, please read the last point again.",
    "Thanks. Clara, when is the next meeting?",
];

/// Sentences that mention the agent without a request to it.
const MENTIONS: [&str; 20] = [
    "Clara said that we should wait for the numbers.",
    "Clara already has the list of names.",
    "Clara is not on the list of guests.",
    "Clara will send the minutes tomorrow.",
    "I asked Clara about the date yesterday.",
    "The slides are from Clara.",
    "We should ask Clara.",
    "I talked to Clara.",
    "Clara and I have looked at the rooms.",
    "That was Clara's idea.",
    "Clara's report is very long.",
    "If Clara agrees, we book it on Monday.",
    "Nobody but Clara knows the code.",
    "I read what Clara wrote about the fair.",
    "Let us wait until Clara is back.",
    "He works with Clara.",
    "Clara thinks that the hall is too small.",
    "Did you tell Clara?",
    "The room next to Clara is free.",
    "I would rather trust Clara.",
];

const OTHERS: [&str; 40] = [
    "Good morning, everybody.",
    "Let us start with the budget.",
    "We are ten percent over it.",
    "Why is that?",
    "The flights were more expensive.",
    "I see.",
    "Then we have to cut something.",
    "What about the catering?",
    "We could order less coffee.",
    "Nobody will notice.",
    "I would.",
    "Then the printing costs.",
    "How many flyers did we print?",
    "Five thousand.",
    "That is a lot.",
    "The next point is the fair.",
    "Is the stand ready?",
    "Almost, the carpet is missing.",
    "Who takes care of the carpet?",
    "I can do that.",
    "It is clear to everybody, then.",
    "We need two more people on Friday.",
    "I can ask my team.",
    "Good.",
    "Is there anything else about the fair?",
    "The hotel has written to us.",
    "What do they want?",
    "They want a deposit.",
    "How much?",
    "Two thousand.",
    "That is fine.",
    "Then the new office.",
    "The lease begins in March.",
    "Do we have the keys?",
    "Not yet.",
    "Later, when the painters are done.",
    "The colour is still open.",
    "I like the light green.",
    "So do I.",
    "Let us take that one.",
];

/// A sentence of the meeting.
struct Sentence {
    text: &'static str,
    speaker: &'static str,
    is_question: bool,
}

/// The sentences in a fixed mixed order: each question after several others.
fn sentences() -> Vec<Sentence> {
    let mut others: Vec<&'static str> = Vec::new();
    for (index, other) in OTHERS.iter().enumerate() {
        others.push(other);
        others.extend(MENTIONS.get(index / 2).filter(|_| index % 2 == 1));
    }
    let mut all = Vec::new();
    let speaker = |index: usize| PEOPLE[index * 7 % 3];
    for (index, text) in others.into_iter().enumerate() {
        if index % 5 == 2 {
            let question = QUESTIONS[index / 5];
            all.push(Sentence { text: question, speaker: speaker(index + 1), is_question: true });
        }
        all.push(Sentence { text, speaker: speaker(index), is_question: false });
    }
    all
}

/// The scenario: people leave 1.6 s between their sentences, and 9 s after a question, for its
/// answer and to end the time for follow-ups.
fn scenario(meeting: Value) -> String {
    let mut user = Vec::new();
    let mut at = 1.0;
    for Sentence { text, speaker, is_question } in sentences() {
        let seconds = 0.4 + text.len() as f64 * 0.06;
        user.push(json!({"from": at, "to": at + seconds, "speaker": speaker, "text": text}));
        at += seconds + if is_question { 12.5 } else { 2.2 };
    }
    let replies = [json!({"to": "*", "say": "Here is the answer.", "audio": 1.2})];
    json!({"name": "A meeting", "meeting": meeting, "user": user, "replies": replies, "until": 600})
        .to_string()
}

/// The words that were answered, and all utterances of the record with their speakers.
fn run(meeting: Value) -> (Vec<String>, Vec<(String, Option<String>)>) {
    let printed = simulate(scenario(meeting).as_bytes(), false).unwrap();
    let events: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut last = String::new();
    let (mut answered, mut utterances) = (Vec::new(), Vec::new());
    for event in &events {
        match event["what"].as_str().unwrap() {
            "utterance_committed" => {
                last = event["text"].as_str().unwrap().to_owned();
                utterances.push((last.clone(), event["speaker"].as_str().map(Into::into)));
            }
            "agent.started_speaking" => answered.push(last.clone()),
            _ => {}
        }
    }
    (answered, utterances)
}

#[test]
fn the_agent_answers_all_questions_and_nothing_else() {
    for speaker_delay in [json!(0.1), json!(0.6), json!(3.0), Value::Null] {
        let meeting = json!({"names": ["Clara"], "speaker_delay": speaker_delay});
        let (answered, utterances) = run(meeting);
        assert_eq!(answered, QUESTIONS, "reports after {speaker_delay} s");
        assert_eq!(utterances.len(), sentences().len(), "the transcript is complete");
    }
}

#[test]
fn each_utterance_has_its_speaker() {
    let (_, utterances) = run(json!({"names": ["Clara"], "speaker_delay": 0.25}));
    let expected: Vec<_> =
        sentences().iter().map(|s| (s.text.to_owned(), Some(s.speaker.to_owned()))).collect();
    // The first one is committed before anybody is known to speak.
    assert_eq!(utterances, expected);
}

#[test]
fn an_observer_answers_nothing_without_its_wake_phrase() {
    let meeting = json!({"mode": "observer", "names": ["Clara"], "wake_phrase": "hey assistant"});
    let (answered, utterances) = run(meeting);
    assert!(answered.is_empty(), "{answered:?}");
    assert_eq!(utterances.len(), sentences().len(), "the transcript is complete");
}

#[test]
fn in_one_to_one_mode_everything_is_answered() {
    let (answered, _) = run(json!({"mode": "one_to_one"}));
    assert_eq!(answered.len(), sentences().len());
}
