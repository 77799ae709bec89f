//! Goodbyes, repetitions, follow-ups, and texts that make no sense.

use super::*;

fn end_call() -> Tool {
    Tool {
        name: "end_call".into(),
        description: "Ends the call.".into(),
        parameters: json!({"type": "object", "properties": {"farewell": {"type": "string"}}}),
        rule: None,
    }
}

#[test]
fn a_goodbye_ends_the_call_and_a_question_does_not() {
    let farewell = |text: &str| Some(("end_call".to_owned(), json!({"farewell": text})));
    let tools = [end_call()];
    assert_eq!(call("Okay, thanks, bye!", &tools), farewell("Goodbye! Have a nice day."));
    assert_eq!(call("please hang up", &tools), farewell("Goodbye! Have a nice day."));
    let named = [
        (Role::User, "my name is paul"),
        (Role::Assistant, "Nice to meet you, Paul."),
        (Role::User, "goodbye"),
    ];
    let words = "Goodbye, Paul! It was nice talking to you.";
    let arguments = json!({"farewell": words});
    assert_eq!(ask_all(&named, &tools), Answer::ToolCall { name: "end_call".into(), arguments });
    assert_eq!(reply_text(&named), words);
    let mut named_by_prompt = request(vec![item(Role::User, "thanks clara see you soon")], &tools);
    named_by_prompt.prompt = "You are Clara Bell, the host. Be brief.".into();
    let mut asked = request(vec![item(Role::User, "are you a robot")], &[]);
    asked.prompt.clone_from(&named_by_prompt.prompt);
    let introduced = "I'm Clara Bell, a computer program that talks with you.".to_owned();
    assert_eq!(answer(&asked, "Demo", None), Answer::Say(introduced));
    assert!(matches!(answer(&named_by_prompt, "Demo", None), Answer::ToolCall { .. }));
    assert_eq!(call("bye and when do you open on saturday", &tools), None);
    assert_eq!(call("when does it end", &tools), None);
    // An operator's own tool of this name is like any other.
    let own = Tool { parameters: Value::Null, ..end_call() };
    assert_eq!(call("bye", &[own]), None);
}

#[test]
fn no_reply_repeats_one_of_the_last_replies() {
    for text in [
        "what is the capital of mongolia",
        "how much is a check up",
        "lamp of the when is a",
        "thank you",
        "how are you",
        "can you hear me",
        "who are you",
        "why",
        "tell me more",
        "wait",
        "yes",
        "no",
    ] {
        let mut turns: Vec<(Role, String)> = Vec::new();
        for turn in 0..4 {
            turns.push((Role::User, text.to_owned()));
            let borrowed: Vec<(Role, &str)> =
                turns.iter().map(|(role, text)| (*role, text.as_str())).collect();
            let reply = reply_text(&borrowed);
            let before = turns.last_chunk::<2>().filter(|_| turn > 0);
            assert!(before.is_none_or(|[last, _]| last.1 != reply), "{text}: {reply}");
            turns.push((Role::Assistant, reply));
        }
    }
    let again = [
        (Role::User, "how much is a check up"),
        (Role::Assistant, "A check-up costs 42 euros, an X-ray 105 euros."),
        (Role::User, "what does a check up cost"),
    ];
    assert_eq!(reply_text(&again), "As I said: A check-up costs 42 euros, an X-ray 105 euros.");
}

#[test]
fn a_clear_text_that_is_no_question_is_not_asked_for_again() {
    for (text, reply) in [
        ("tell me a joke", "I'm not good at jokes."),
        ("can you sing a song for me", "I'm not good at jokes."),
        ("I want to talk to a human", "There is no person on this line."),
        ("could I speak to your manager please", "There is no person on this line."),
        ("You are stupid.", "I'm sorry that I wasn't more helpful."),
        ("that is wrong", "I'm sorry about that."),
        ("you are great", "Thank you, that is kind."),
    ] {
        let found = ask(text);
        assert!(found.starts_with(reply), "{text}: {found}");
    }
}

#[test]
fn word_salad_is_asked_for_again_and_an_unknown_subject_is_not() {
    for text in ["lamp of the when is a", "purple mop sandwich lane", "can of the is at for my"] {
        let reply = ask(text);
        assert!(reply.starts_with("I'm sorry, I didn't catch that."), "{text}: {reply}");
    }
    for text in ["do you sell skis", "is there a swimming pool", "can i buy a horse"] {
        let reply = ask(text);
        assert!(reply.contains("I don't know"), "{text}: {reply}");
        assert!(reply.contains("about opening hours"), "{text}: {reply}");
    }
}

#[test]
fn it_tells_more_and_gives_reasons() {
    let mut request = request(Vec::new(), &[]);
    request.snippets[..1].clone_from_slice(&[Snippet {
        kb_id: "kb".into(),
        doc_id: "mill".into(),
        text: "# The mill\nThe mill opens at ten. Visitors wear a helmet because stones fall. \
            The tower is closed."
            .into(),
        score: 1.0,
    }]);
    request.snippets.truncate(1);
    let mut next = |before: &str, text: &str| {
        request.history = [(Role::Assistant, before), (Role::User, text)]
            .map(|(role, text)| Arc::new(item(role, text)))
            .to_vec();
        match answer(&request, "Ada", None) {
            Answer::Say(text) => text,
            call => panic!("{call:?}"),
        }
    };
    let helmet = "Visitors wear a helmet because stones fall.";
    assert_eq!(next("The mill opens at ten.", "tell me more"), helmet);
    assert_eq!(next("The mill opens at ten.", "why?"), helmet);
    assert!(next("Hello.", "why is that").contains("reason"));
    assert_eq!(
        next("The mill opens at ten. Visitors wear a helmet because stones fall.", "go on"),
        "The tower is closed."
    );
}

/// An encoder of two subjects: texts about water and others.
struct WaterEncoder;

impl TextEncoder for WaterEncoder {
    fn encode(&self, text: &str) -> Vec<f32> {
        let text = text.to_lowercase();
        let is_wet = ["lake", "water", "swim", "beach"].iter().any(|word| text.contains(word));
        if is_wet { vec![1.0, 0.0] } else { vec![0.0, 1.0] }
    }

    fn token_count(&self, _: &str) -> usize {
        1
    }
}

#[test]
fn with_an_encoder_a_paraphrase_finds_its_candidate() {
    let history = vec![item(Role::User, "where could my tired horse swim tonight")];
    let mut request = request(history, &[]);
    request.snippets = vec![Snippet {
        kb_id: "kb".into(),
        doc_id: "camp".into(),
        text: "The kitchen opens at ten. The lake is open to animals. Tents are green.".into(),
        score: 0.0,
    }];
    let encoder = CachedEncoder::new(Arc::new(WaterEncoder));
    let Answer::Say(reply) = answer(&request, "Ada", Some(&encoder)) else { panic!("no reply") };
    assert!(reply.contains("The lake is open to animals."), "{reply}");
    let Answer::Say(reply) = answer(&request, "Ada", None) else { panic!("no reply") };
    assert!(!reply.contains("The lake"), "{reply}");
}
