//! How the avatar shows a segment: by its tag, else by its source and its words.
//!
//! Rules of words are English and careful, because a wrong expression is worse than none. Only the
//! first clause of a segment counts. Texts in other languages are calm, but for their questions.

use conversation::direction::Expression;
use conversation::output::{SpeechSource, TtsRequest};

use super::gesture_words::{Gesture, opening_gesture};

/// How the avatar shows a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The expression of its face.
    pub expression: Expression,
    /// Whether it nods.
    pub nod: bool,
    /// Whether the segment is a question.
    pub is_question: bool,
    /// The gesture of the first word.
    pub opening: Option<Gesture>,
    /// Whether the face shows the expression before the first word, even if that delays speech: if
    /// it was requested, and for greetings and farewells.
    pub leads_in: bool,
}

impl Manner {
    /// The gesture that begins before the first word.
    #[must_use]
    pub fn opening_gesture(&self) -> Option<Gesture> {
        self.opening.or(self.nod.then_some(Gesture::Nod))
    }
}

/// Words before the clause that counts: "Oh, thank you."
const INTERJECTIONS: [&str; 14] = [
    "ah",
    "alright",
    "good",
    "great",
    "no",
    "oh",
    "oh no",
    "ok",
    "okay",
    "perfect",
    "sure",
    "well",
    "wonderful",
    "yes",
];
/// Words that may follow "thank you": not "Thank you cards".
const AFTER_THANKS: [&str; 9] =
    ["a", "again", "all", "both", "everyone", "for", "kindly", "so", "very"];
/// Words that may follow "sorry": not "Sorry is a card game".
const AFTER_SORRY: [&str; 9] = ["about", "again", "but", "for", "i", "if", "that", "to", "we"];
/// "I am sorry to hear that" is sympathy, not an apology.
const SYMPATHY: [&str; 4] = ["hear", "learn", "read", "see"];
const INTENSIFIERS: [&str; 6] = ["deeply", "really", "so", "terribly", "truly", "very"];
const APOLOGIES: [&[&str]; 9] = [
    &["apologies", "about"],
    &["apologies", "for"],
    &["i", "apologise"],
    &["i", "apologize"],
    &["i", "do", "apologize"],
    &["my", "apologies"],
    &["please", "forgive", "me"],
    &["we", "apologise"],
    &["we", "apologize"],
];
const PRAISE: [&str; 8] =
    ["good", "great", "lovely", "nice", "pleasant", "pleased", "safe", "wonderful"];
const GREETINGS: [&[&str]; 6] = [
    &["good", "afternoon"],
    &["good", "evening"],
    &["good", "morning"],
    &["hello"],
    &["hi"],
    &["welcome"],
];
/// Maximum number of words of a greeting's clause: "Good morning Mr Smith".
const MAX_GREETING_WORDS: usize = 4;
const FAREWELLS: [&[&str]; 10] = [
    &["bye"],
    &["bye", "bye"],
    &["goodbye"],
    &["good", "night"],
    &["see", "you"],
    &["see", "you", "again"],
    &["see", "you", "later"],
    &["see", "you", "soon"],
    &["see", "you", "tomorrow"],
    &["take", "care"],
];
/// What follows in "Have a nice …".
const OCCASIONS: [&str; 11] = [
    "afternoon",
    "day",
    "evening",
    "flight",
    "journey",
    "morning",
    "night",
    "stay",
    "time",
    "trip",
    "weekend",
];
const REPLIES_TO_THANKS: [&[&str]; 3] =
    [&["my", "pleasure"], &["you", "are", "welcome"], &["youre", "welcome"]];

/// The manners of the segments of a call, in the order of their requests.
#[derive(Debug, Default)]
pub struct Manners {
    /// The utterance whose last segment has not ended its sentence, and the sentence's expression.
    open_sentence: Option<(SpeechSource, Expression)>,
}

impl Manners {
    /// The manner of the next segment. A sentence that is cut into segments has the expression of
    /// its first one, if that is not calm.
    pub fn manner_of(&mut self, request: &TtsRequest) -> Manner {
        let inferred = infer(request);
        let begun = self.open_sentence.take().filter(|(source, expression)| {
            *expression != Expression::Calm && is_same_utterance(source, &request.source)
        });
        let expression = match (request.expression, begun) {
            (None, Some((_, begun))) => begun,
            _ => inferred.expression,
        };
        if !ends_sentence(&request.text) {
            self.open_sentence = Some((request.source.clone(), expression));
        }
        Manner { expression, ..inferred }
    }
}

fn is_same_utterance(a: &SpeechSource, b: &SpeechSource) -> bool {
    match (a, b) {
        (
            SpeechSource::Generation { generation: a, .. },
            SpeechSource::Generation { generation: b, .. },
        ) => a == b,
        _ => a == b,
    }
}

fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || "\"'”’)*".contains(c));
    text.ends_with(['.', '!', '?', '…', '。', '！', '？'])
}

/// The manner of a segment by itself.
fn infer(request: &TtsRequest) -> Manner {
    let is_question = request.text.trim_end().ends_with(['?', '？', '؟']);
    let words = first_clause(&request.text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (inferred, leads_in) = match request.source {
        SpeechSource::Greeting | SpeechSource::Exit | SpeechSource::Farewell => {
            (Expression::Warm, true)
        }
        SpeechSource::Error => (Expression::Concerned, false),
        _ => (expression_of_words(&words, is_question), is_farewell(&words)),
    };
    Manner {
        expression: request.expression.unwrap_or(inferred),
        nod: request.nod,
        is_question,
        opening: opening_gesture(&request.text),
        leads_in: leads_in || request.expression.is_some(),
    }
}

fn expression_of_words(words: &[&str], is_question: bool) -> Expression {
    match (is_apology(words), is_question) {
        (true, false) => Expression::Concerned,
        // "Sorry, could you repeat that?" and "I am so sorry, are you hurt?" differ.
        (true, true) => Expression::Calm,
        _ if is_thanks(words) || is_greeting(words) || is_farewell(words) => Expression::Warm,
        (false, true) => Expression::Curious,
        (false, false) => Expression::Calm,
    }
}

/// The words of the first clause that is no interjection, in lower case and without apostrophes.
fn first_clause(text: &str) -> Vec<String> {
    let clauses = text.split([',', '.', '!', '?', ';', ':', '…', '—', '–']);
    let mut words = clauses.map(|clause| -> Vec<String> {
        let word = |written: &str| -> String {
            written.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        clause.split_whitespace().map(word).filter(|word| !word.is_empty()).collect()
    });
    let counts =
        |words: &Vec<String>| !words.is_empty() && !INTERJECTIONS.contains(&&*words.join(" "));
    words.find(counts).unwrap_or_default()
}

fn is_apology(words: &[&str]) -> bool {
    if APOLOGIES.iter().any(|apology| words.starts_with(apology)) {
        return true;
    }
    let subject = match words {
        ["i", "am", ..] | ["we", "are", ..] => 2,
        ["im" | "were", ..] => 1,
        _ => 0,
    };
    let said = &words[subject..];
    let said =
        if said.first().is_some_and(|w| INTENSIFIERS.contains(w)) { &said[1..] } else { said };
    match said {
        ["sorry"] => true,
        ["sorry", "to", verb, ..] => !SYMPATHY.contains(verb),
        ["sorry", next, ..] => AFTER_SORRY.contains(next),
        _ => false,
    }
}

fn is_thanks(words: &[&str]) -> bool {
    match words {
        ["thank", "you"] | ["thanks"] | ["many", "thanks", ..] => true,
        ["thank", "you", next, ..] | ["thanks", next, ..] => AFTER_THANKS.contains(next),
        _ => REPLIES_TO_THANKS.contains(&words),
    }
}

fn is_greeting(words: &[&str]) -> bool {
    let words = words.strip_prefix(&["its"]).unwrap_or(words);
    if let [praise, "to", "meet" | "see", "you", ..] = words {
        return PRAISE.contains(praise);
    }
    words.len() <= MAX_GREETING_WORDS
        && GREETINGS.iter().any(|greeting| words.starts_with(greeting))
}

fn is_farewell(words: &[&str]) -> bool {
    match words {
        ["have", "a", praise, occasion, ..] => {
            PRAISE.contains(praise) && OCCASIONS.contains(occasion)
        }
        _ => FAREWELLS.contains(&words),
    }
}

#[cfg(test)]
mod tests {
    use conversation::input::{CommandId, Epoch, GenerationId, SegmentId};

    use super::*;

    fn request(text: &str, source: SpeechSource) -> TtsRequest {
        TtsRequest {
            segment: SegmentId(1),
            epoch: Epoch(1),
            text: text.into(),
            source,
            use_fallback: false,
            expression: None,
            nod: false,
        }
    }

    fn generated(text: &str, generation: u32) -> TtsRequest {
        let generation = GenerationId { epoch: Epoch(1), index: generation };
        request(text, SpeechSource::Generation { generation, segment_index: 0 })
    }

    /// The expression of a text of the language model.
    fn expression(text: &str) -> Expression {
        Manners::default().manner_of(&generated(text, 0)).expression
    }

    #[test]
    fn a_tag_comes_first_then_the_source_then_the_words() {
        let by_itself = |request: &TtsRequest| Manners::default().manner_of(request);
        let mut tagged = request("I'm sorry, are you well?", SpeechSource::Greeting);
        assert_eq!(by_itself(&tagged).expression, Expression::Warm);
        (tagged.expression, tagged.nod) = (Some(Expression::Glad), true);
        let expected = Manner {
            expression: Expression::Glad,
            nod: true,
            is_question: true,
            opening: None,
            leads_in: true,
        };
        assert_eq!(by_itself(&tagged), expected);
        tagged.expression = Some(Expression::Calm);
        assert_eq!(by_itself(&tagged).expression, Expression::Calm, "calm is an expression, too");
        for source in [SpeechSource::Exit, SpeechSource::Farewell] {
            assert_eq!(
                by_itself(&request("Our time is over.", source)).expression,
                Expression::Warm
            );
        }
        let failed = by_itself(&request("Please say that again.", SpeechSource::Error));
        assert_eq!(failed.expression, Expression::Concerned);
        let said = by_itself(&request("Thanks!", SpeechSource::Say(CommandId(1))));
        assert_eq!((said.expression, said.is_question), (Expression::Warm, false));
    }

    #[test]
    fn greetings_thanks_and_farewells_are_warm() {
        for text in [
            "Hello!",
            "Hi there, how can I help?",
            "Good morning Mr Smith, come in.",
            "Welcome back!",
            "It's nice to meet you.",
            "Thank you.",
            "Great, thanks for waiting.",
            "Oh, thank you so much!",
            "You're welcome!",
            "My pleasure.",
            "Goodbye!",
            "See you soon.",
            "Have a nice day.",
            "Okay, take care.",
        ] {
            assert_eq!(expression(text), Expression::Warm, "{text}");
        }
    }

    #[test]
    fn only_greetings_farewells_and_requests_delay_speech() {
        let leads_in = |request: &TtsRequest| Manners::default().manner_of(request).leads_in;
        for (text, expected) in
            [("Goodbye!", true), ("Okay, have a nice day.", true), ("Thank you.", false)]
        {
            assert_eq!(leads_in(&generated(text, 0)), expected, "{text}");
        }
        for (source, expected) in [
            (SpeechSource::Greeting, true),
            (SpeechSource::Exit, true),
            (SpeechSource::Farewell, true),
            (SpeechSource::Error, false),
        ] {
            assert_eq!(leads_in(&request("It is noon.", source)), expected);
        }
        let mut tagged = generated("It is noon.", 0);
        tagged.expression = Some(Expression::Concerned);
        assert!(leads_in(&tagged));
    }

    #[test]
    fn only_the_agent_s_own_apology_is_concerned() {
        for text in [
            "I'm sorry.",
            "I’m so sorry about that.",
            "Sorry, I did not get that.",
            "Oh no, I am really sorry for the delay.",
            "We're sorry, but we are closed.",
            "Sorry to keep you waiting.",
            "My apologies, I was wrong.",
            "I apologize for the confusion.",
        ] {
            assert_eq!(expression(text), Expression::Concerned, "{text}");
        }
        for text in [
            "I'm sorry to hear that you are glad.",
            "Sorry to see you go.",
            "He said: I'm sorry.",
            "Sorry is a card game.",
            "I am not sorry.",
            "I was sorry to leave.",
            "She apologizes for the noise.",
            "If you are sorry, say it.",
            "Apologies are not necessary.",
        ] {
            assert_eq!(expression(text), Expression::Calm, "{text}");
        }
    }

    #[test]
    fn questions_are_curious_unless_they_begin_with_an_apology() {
        for text in ["What is your name?", "Great, which one?", "¿Cómo estás?", "好吗？"] {
            assert_eq!(expression(text), Expression::Curious, "{text}");
        }
        assert_eq!(expression("I'm so sorry, are you hurt?"), Expression::Calm);
        for text in ["He asked \"why?\"", "Ask me? No.", "It is noon."] {
            let shown_as = Manners::default().manner_of(&generated(text, 0));
            assert_eq!(shown_as, Manner::default(), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_an_emotion_is_calm() {
        for text in [
            "",
            "…",
            "Thanks to the rain, the park is closed.",
            "Thank you cards are on the second floor.",
            "Hello World is the first program that most people write.",
            "Good evening dresses are expensive in this town.",
            "Hi-fi equipment is upstairs, on the left side of the hall.",
            "Have a good look at the map.",
            "Take care of the step.",
            "See you can do it.",
            "You are welcome to bring your dog.",
            "Great pleasure comes from small things.",
            "Danke schön.",
            "Es tut mir leid.",
        ] {
            assert_eq!(expression(text), Expression::Calm, "{text}");
        }
    }

    #[test]
    fn a_sentence_in_segments_has_the_expression_of_its_first_one() {
        let mut manners = Manners::default();
        let mut next = |text: &str, generation| {
            let shown_as = manners.manner_of(&generated(text, generation));
            (shown_as.expression, shown_as.is_question)
        };
        assert_eq!(next("I am so sorry,", 0), (Expression::Concerned, false));
        assert_eq!(next("we are closed today,", 0), (Expression::Concerned, false));
        assert_eq!(next("are you hurt?", 0), (Expression::Concerned, true));
        assert_eq!(next("It is noon.", 0), (Expression::Calm, false));
        assert_eq!(next("Well then, my friend,", 0), (Expression::Calm, false));
        assert_eq!(next("what is it?", 0), (Expression::Curious, true));
        assert_eq!(next("I am so sorry,", 0), (Expression::Concerned, false));
        assert_eq!(next("it is noon.", 1), (Expression::Calm, false), "of another utterance");
        assert_eq!(next("Thanks for that,", 1), (Expression::Warm, false));
        let mut tagged = generated("it is late.", 1);
        tagged.expression = Some(Expression::Calm);
        assert_eq!(manners.manner_of(&tagged).expression, Expression::Calm);
    }
}
