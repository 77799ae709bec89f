//! Query of the knowledge search, and the number of results for the LLM.

use std::sync::Arc;

use conversation::event::{HistoryItem, Role};

/// Maximum number of snippets given to the LLM for one generation.
pub const MAX_SNIPPETS: usize = 4;

/// A turn shorter than this many words is searched together with the previous one: "And how much is
/// it?"
const MIN_STANDALONE_WORDS: usize = 5;

/// The query: the words of the user's open turn, with the previous one if the last is too short to stand alone.
///
/// `None` if the last item is not a user message (the generation after a tool call, a greeting):
/// there is nothing new to find.
#[must_use]
pub fn search_query(history: &[Arc<HistoryItem>]) -> Option<String> {
    let talked = |i: &&Arc<HistoryItem>| !matches!(i.role, Role::System | Role::Visitor);
    let mut turns = history.iter().rev().filter(talked).peekable();
    let last = turns.next_if(|i| i.role == Role::User)?;
    if last.words().split_whitespace().count() >= MIN_STANDALONE_WORDS {
        return Some(last.words().to_owned());
    }
    let previous = turns.find(|i| i.role == Role::User);
    Some(previous.map_or_else(
        || last.words().to_owned(),
        |previous| format!("{} {}", previous.words(), last.words()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(role: Role, text: &str) -> Arc<HistoryItem> {
        Arc::new(HistoryItem {
            role,
            speaker: None,
            name: None,
            arguments: None,
            text: text.into(),
            interrupted: false,
            utterance: None,
            started_at: None,
            ended_at: None,
            in_context: true,
        })
    }

    #[test]
    fn a_short_question_is_searched_with_the_one_before_it() {
        let history = [
            item(Role::User, "What does the blue bicycle cost?"),
            item(Role::Assistant, "Ninety."),
            item(Role::User, "And its weight?"),
        ];
        assert_eq!(search_query(&history[..1]).unwrap(), "What does the blue bicycle cost?");
        assert_eq!(
            search_query(&history).unwrap(),
            "What does the blue bicycle cost? And its weight?"
        );
    }

    #[test]
    fn the_names_of_speakers_are_not_searched() {
        let spoken = |speaker: &str, words: &str| {
            let text = format!("{speaker}: {words}");
            let plain = item(Role::User, &text);
            Arc::new(HistoryItem { speaker: Some(speaker.into()), ..(*plain).clone() })
        };
        let history = [
            spoken("Maria Sol", "What does the blue bicycle cost?"),
            spoken("Tom Lind", "And its weight?"),
        ];
        assert_eq!(search_query(&history[..1]).unwrap(), "What does the blue bicycle cost?");
        // The name does not make a short question long.
        assert_eq!(
            search_query(&history).unwrap(),
            "What does the blue bicycle cost? And its weight?"
        );
    }

    #[test]
    fn context_that_came_behind_a_question_hides_it_from_no_search() {
        let history = [
            item(Role::User, "What does the blue bicycle cost?"),
            item(Role::System, "Today it is raining."),
            item(Role::Visitor, "The visitor looks at page three."),
        ];
        assert_eq!(search_query(&history).unwrap(), "What does the blue bicycle cost?");
    }

    #[test]
    fn the_step_after_a_tool_searches_nothing() {
        assert_eq!(
            search_query(&[item(Role::User, "What is the weather?"), item(Role::Tool, "Sunny")]),
            None
        );
        assert_eq!(search_query(&[]), None);
    }
}
