//! Replies that need no knowledge.

use conversation::event::Role;
use knowledge::normalize_words;

use super::{TurnContext, knowledge_answer, speakable};

/// The reply to greetings and questions about the agent itself; `None` for anything else.
pub(super) fn reply(talk: &TurnContext<'_>) -> Option<String> {
    let all = normalize_words(talk.user_text);
    let name: Vec<String> = normalize_words(talk.agent_name);
    let filler = |word: &String| {
        matches!(
            word.as_str(),
            "hello" | "hi" | "hey" | "um" | "uh" | "well" | "so" | "please" | "there" | "oh"
        ) || name.contains(word)
    };
    let greeted = all
        .first()
        .is_some_and(|word| matches!(word.as_str(), "hello" | "hi" | "hey" | "good" | "greetings"));
    let start = all.iter().position(|word| !filler(word)).unwrap_or(all.len());
    let end = all.iter().rposition(|word| !filler(word)).map_or(start, |i| i + 1);
    let words = all[start..end].join(" ");
    let count = end - start;
    let is = |phrases: &[&str]| phrases.contains(&words.as_str());
    // Whether a phrase occurs in a text of at most this many words: "and who are you then".
    let has = |phrases: &[&str], max_words: usize| {
        count <= max_words && phrases.iter().any(|phrase| contains_phrase(&words, phrase))
    };
    let me = talk.agent_name;

    if all.is_empty() {
        return Some("I'm sorry, I didn't catch that.".into());
    }
    if count == 0
        || is(&["good morning", "good afternoon", "good evening", "good day", "greetings", "morning"])
    {
        return greeted.then(|| greeting(talk)).or_else(|| Some("Yes?".into()));
    }
    if has(
        &[
            "how are you",
            "how do you do",
            "how is it going",
            "how it going",
            "how are things",
            "hows it going",
            "how you doing",
        ],
        7,
    ) {
        return Some("I'm fine, thank you. What can I do for you?".into());
    }
    if has(
        &[
            "your name",
            "who are you",
            "whats your name",
            "are you called",
            "introduce yourself",
            "about yourself",
            "who am i talking to",
            "who is this",
        ],
        8,
    ) {
        return Some(introduction(talk));
    }
    if has(
        &[
            "are you a robot",
            "are you a human",
            "are you human",
            "are you real",
            "are you a person",
            "are you a machine",
            "are you a bot",
            "are you an ai",
            "are you a computer",
        ],
        8,
    ) {
        return Some(match me {
            "" => "I'm a computer program that talks with you.".into(),
            me => format!("I'm {me}, a computer program that talks with you."),
        });
    }
    if has(
        &[
            "what can you do",
            "what do you do",
            "how can you help",
            "can you help me",
            "what can i ask",
            "what do you know",
        ],
        7,
    ) || is(&["help", "help me"])
    {
        return Some("I can answer questions about what I was told. Just ask.".into());
    }
    if has(
        &[
            "say that again",
            "repeat that",
            "say it again",
            "repeat it",
            "come again",
            "did you say",
            "once more",
        ],
        7,
    ) || is(&["pardon", "repeat", "sorry", "again"])
    {
        return Some(
            talk.last_text(Role::Assistant)
                .map_or_else(|| "I didn't say anything yet.".into(), |text| text.trim().to_owned()),
        );
    }
    if has(
        &[
            "can you hear me",
            "do you hear me",
            "are you there",
            "testing",
            "anybody there",
            "is anyone there",
        ],
        6,
    ) {
        return Some("Yes, I can hear you.".into());
    }
    if has(&["goodbye", "bye", "see you", "good bye", "good night", "talk to you later", "take care"], 6) {
        return Some("Goodbye!".into());
    }
    if has(&["thank you", "thanks", "thank"], 5) && !is_question(&all) {
        return Some("You're welcome.".into());
    }
    if is(&[
        "no",
        "nope",
        "no thanks",
        "thats all",
        "that is all",
        "that all",
        "nothing",
        "nothing else",
        "not really",
    ]) {
        return Some("All right.".into());
    }
    if is(&[
        "stop",
        "stop it",
        "be quiet",
        "wait",
        "hold on",
        "never mind",
        "one moment",
        "wait please",
        "please stop",
        "stop please",
        "okay stop",
    ]) {
        return Some("All right. I'm listening.".into());
    }
    if is(&[
        "yes",
        "yeah",
        "yes please",
        "ok",
        "okay",
        "right",
        "sure",
        "fine",
        "great",
        "good",
        "cool",
        "nice",
        "perfect",
        "i see",
        "alright",
        "all right",
        "very good",
        "sounds good",
        "got it",
        "thats good",
        "that good",
    ]) {
        return Some("Good. What would you like to know?".into());
    }
    if let Some(theirs) = stated_name(&words) {
        return Some(format!("Nice to meet you, {}.", title_case(theirs)));
    }
    if has(
        &["what is my name", "whats my name", "what my name", "know my name", "remember my name", "who am i"],
        7,
    ) {
        let stated = talk
            .history
            .iter()
            .rev()
            .filter(|item| item.role == Role::User)
            .find_map(|item| stated_name(&normalize_words(&item.text).join(" ")).map(title_case));
        return Some(stated.map_or_else(
            || "You haven't told me your name.".into(),
            |name| format!("Your name is {name}."),
        ));
    }
    None
}

/// The reply when no answer is known, in rotation.
pub(super) fn unknown_reply(talk: &TurnContext<'_>) -> String {
    let words = normalize_words(talk.user_text);
    if !is_question(&words) && words.len() > 2 {
        return "I see. Ask me anything about what I was told.".into();
    }
    let turns = talk.history.iter().filter(|item| item.role == Role::Assistant).count();
    [
        "I'm sorry, I don't know that.",
        "I don't know. I was told nothing about it.",
        "That I don't know, I'm sorry.",
    ][turns % 3]
        .into()
}

/// Whether the text is a question or a request; transcripts have no question mark.
fn is_question(words: &[String]) -> bool {
    const OPENERS: [&str; 44] = [
        "what", "whats", "who", "whos", "whom", "whose", "when", "where", "wheres", "why", "how", "which",
        "is", "are", "was", "were", "do", "does", "did", "can", "could", "will", "would", "should", "may",
        "might", "has", "have", "had", "tell", "explain", "describe", "give", "show", "say", "list", "name",
        "find", "help", "know", "any", "need", "want", "looking",
    ];
    words.iter().any(|word| OPENERS.contains(&word.as_str()))
}

fn greeting(talk: &TurnContext<'_>) -> String {
    let known = talk.last_text(Role::Assistant).is_some();
    match talk.agent_name {
        "" => "Hello! How can I help you?".into(),
        _ if known => "Hello! How can I help you?".into(),
        name => format!("Hello! I'm {name}. How can I help you?"),
    }
}

fn introduction(talk: &TurnContext<'_>) -> String {
    let known = knowledge_answer::identity(&talk.request.prompt).map(|sentence| speakable(&sentence));
    match (talk.agent_name, known) {
        ("", Some(known)) => known,
        ("", None) => "I'm the assistant of this place.".into(),
        (name, Some(known)) if known.contains(name) => known,
        (name, Some(known)) => format!("I'm {name}. {known}"),
        (name, None) => format!("I'm {name}."),
    }
}

/// The name in "my name is john smith".
fn stated_name(words: &str) -> Option<&str> {
    let openers = ["my name is ", "my name ", "i am called ", "call me ", "you can call me "];
    let name = openers.iter().find_map(|opener| {
        words.strip_prefix(opener).or_else(|| words.split_once(&format!(" {opener}")).map(|(_, name)| name))
    })?;
    let count = name.split(' ').count();
    (count <= 3
        && !name.is_empty()
        && name.split(' ').all(|word| word != "what" && !knowledge::is_stop_word(word)))
    .then_some(name)
}

fn title_case(name: &str) -> String {
    let title = |word: &str| {
        let mut chars = word.chars();
        chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
    };
    name.split(' ').map(title).collect::<Vec<_>>().join(" ")
}

/// Whether `phrase` occurs in `words` as whole words.
fn contains_phrase(words: &str, phrase: &str) -> bool {
    words.match_indices(phrase).any(|(at, _)| {
        let end = at + phrase.len();
        (at == 0 || words.as_bytes()[at - 1] == b' ') && (end == words.len() || words.as_bytes()[end] == b' ')
    })
}
