//! An eight-minute meeting of three people in simulated time: which sentences the agent answers, in
//! each mode, with and without reports of who speaks, and what the model decides.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::simulate::{simulate, simulate_traced};
use serde_json::{Value, json};

const PEOPLE: [&str; 3] = ["Maria", "Tom", "Priya"];

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
fn scenario(meeting: Value, replies: Value) -> String {
    let mut user = Vec::new();
    let mut at = 1.0;
    for Sentence { text, speaker, is_question } in sentences() {
        let seconds = 0.4 + text.len() as f64 * 0.06;
        user.push(json!({"from": at, "to": at + seconds, "speaker": speaker, "text": text}));
        at += seconds + if is_question { 12.5 } else { 2.2 };
    }
    json!({"name": "A meeting", "meeting": meeting, "user": user, "replies": replies, "until": 600})
        .to_string()
}

/// The words that were answered, and all utterances of the record with their speakers.
fn run(meeting: Value) -> (Vec<String>, Vec<(String, Option<String>)>) {
    let replies = json!([{"to": "*", "say": "Here is the answer.", "audio": 1.2}]);
    let printed = simulate(scenario(meeting, replies).as_bytes(), false).unwrap();
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
    for speaker_delay in [json!(0), json!(0.1), json!(0.6), json!(1), json!(3), Value::Null] {
        let meeting = json!({"names": ["Clara"], "speaker_delay": speaker_delay});
        let (answered, utterances) = run(meeting);
        assert_eq!(answered, QUESTIONS, "reports after {speaker_delay} s");
        assert_eq!(utterances.len(), sentences().len(), "the transcript is complete");
    }
}

#[test]
fn each_utterance_has_its_speaker_in_every_mode() {
    let expected: Vec<_> =
        sentences().iter().map(|s| (s.text.to_owned(), Some(s.speaker.to_owned()))).collect();
    for (mode, decide) in [
        ("one_to_one", "rules"),
        ("participant", "rules"),
        ("participant", "model"),
        ("observer", "rules"),
    ] {
        for delay in [0.0, 0.25, 0.5, 1.0] {
            let meeting = json!({
                "mode": mode,
                "decide": decide,
                "names": ["Clara"],
                "wake_phrase": "hey assistant",
                "speaker_delay": delay,
            });
            let (_, utterances) = run(meeting);
            assert_eq!(utterances, expected, "{mode}, {decide}, reports after {delay} s");
        }
    }
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
    let (answered, utterances) = run(json!({"mode": "one_to_one"}));
    assert_eq!(answered.len(), sentences().len());
    assert_eq!(utterances.len(), sentences().len(), "the transcript is complete");
}

/// What a scripted model says to a sentence of others; `None` = it stays silent.
fn volunteered(text: &str) -> Option<String> {
    (OTHERS.contains(&text) && text.ends_with('?')).then(|| format!("I know that. {text}"))
}

/// The model speaks to the questions of others, and says a few words before it stays silent. Each
/// request is followed by what the script says to the newest words since the agent has spoken.
#[test]
fn the_decisions_of_the_model_are_followed_exactly() {
    let answer = |text: &str| format!("Here is the answer. {text}");
    let mut replies: Vec<Value> = QUESTIONS
        .iter()
        .map(|text| json!({"to": text, "say": answer(text), "audio": 1.2}))
        .collect();
    let others = OTHERS.iter().filter_map(|text| Some((text, volunteered(text)?)));
    replies.extend(others.map(|(text, say)| json!({"to": text, "say": say, "audio": 0.5})));
    replies.push(json!({"to": "*", "say": "Nobody asked me.", "stay_silent": true}));
    for speaker_delay in [0.0, 0.3, 1.0] {
        // Without follow-ups, which are a decision of the rules.
        let meeting = json!({
            "names": ["Clara"],
            "decide": "model",
            "follow_up_window": 0,
            "speaker_delay": speaker_delay,
        });
        let scenario = scenario(meeting, json!(replies));
        let (printed, trace) = simulate_traced(scenario.as_bytes()).unwrap();
        assert!(!printed.contains("Nobody asked me") && !printed.contains("tool"));
        let (mut expected, mut spoken) = (Vec::new(), Vec::new());
        let (mut recent, mut committed): (Vec<String>, usize) = (Vec::new(), 0);
        let mut request_times = Vec::new();
        for line in trace.lines().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            for output in line["out"].as_array().into_iter().flatten() {
                let event = &output["Tell"]["event"];
                let text = event["text"].as_str().unwrap_or_default();
                match event["what"].as_str().unwrap_or_default() {
                    "utterance_committed" => committed += 1,
                    "history" if event["role"] == "user" => recent.push(text.to_owned()),
                    "history" => recent.clear(),
                    "agent.started_speaking" => spoken.push(text.to_owned()),
                    _ => {}
                }
                let request = &output["AskLlm"];
                if request["may_stay_silent"] == true {
                    request_times.push(line["at"].as_u64().unwrap());
                    expected.extend(recent.iter().rev().find_map(|text| volunteered(text)));
                } else if request.is_object() {
                    expected.push(answer(recent.last().unwrap()));
                }
            }
        }
        assert_eq!(spoken, expected);
        let answered = |text: &str| spoken.contains(&answer(text));
        assert!(QUESTIONS.into_iter().all(answered), "{spoken:?}");
        assert!(spoken.len() >= QUESTIONS.len() + 5, "{spoken:?}");
        assert!(request_times.len() > spoken.len(), "{request_times:?}");
        assert!(request_times.is_sorted_by(|a, b| a + 10_000_000 <= *b), "{request_times:?}");
        assert_eq!(committed, sentences().len(), "the transcript is complete");
    }
}

#[test]
fn commands_work_in_every_mode() {
    for meeting in [
        json!({"mode": "one_to_one"}),
        json!({"names": ["Clara"]}),
        json!({"names": ["Clara"], "decide": "model"}),
        json!({"mode": "observer", "wake_phrase": "hey assistant"}),
    ] {
        let scenario = json!({
            "meeting": meeting,
            "user": [{"from": 0.5, "to": 2, "speaker": "Tom", "text": "This is only a remark."}],
            "replies": [
                {"to": "What is next?", "say": "The budget.", "audio": 1.0},
                {"to": "*", "say": "I see.", "audio": 1.0},
            ],
            "actions": [
                {"at": 8, "do": "respond", "text": "What is next?"},
                {"at": 12, "do": "say", "text": "A notice for all.", "audio": 4},
                {"at": 14, "do": "interrupt"},
            ],
            "until": 20,
        });
        let printed = simulate(scenario.to_string().as_bytes(), false).unwrap();
        let events: Vec<Value> =
            printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said = |text: &str| {
            let is_said = |event: &&Value| event["what"] == "agent.started_speaking";
            events.iter().filter(is_said).any(|event| event["text"] == text)
        };
        assert!(said("The budget.") && said("A notice for all."), "{meeting}: {printed}");
        let interrupted = json!({"t": 14.0, "what": "agent.interrupted"});
        assert!(events.contains(&interrupted), "{meeting}: {printed}");
    }
}
