//! Candidates: the sentences of the agent's knowledge that may be spoken, each with the heading or the
//! question above it.

use conversation::event::Snippet;
use knowledge::{normalize_words, sentences};

use super::phrases::Phrases;
use super::speakable::speakable;
use super::template::Placeholder;

/// Maximum length of a heading, in bytes and in words.
const MAX_HEADING: (usize, usize) = (60, 7);

/// Maximum number of words of the value of a label that is spoken as "label: that is value".
const MAX_VALUE_WORDS: usize = 6;

/// Maximum number of words of an item of a list that is spoken as a whole, and length of this list.
const MAX_ITEM_WORDS: usize = 4;
const MAX_LIST_BYTES: usize = 240;

/// Source of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The agent's knowledge, or the operator's context.
    Knowledge,
    /// A statement about the agent in its prompt.
    Prompt,
    /// A statement of the user or of the user's client.
    User,
}

/// A sentence that may answer.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The sentence as it is spoken.
    pub(super) sentence: String,
    /// The same. If it starts with a pronoun, the sentence before it precedes.
    pub(super) spoken: String,
    /// The latter for comparisons.
    pub(super) body: String,
    /// The heading above it.
    pub(super) heading: String,
    /// The question above it in a list of questions and answers.
    pub(super) question: Option<String>,
    /// The sentence before it in the same section.
    pub(super) before: Option<String>,
    /// Candidates below one heading or question have the same number.
    pub(super) section: usize,
    pub(super) origin: Origin,
}

impl Candidate {
    /// The question or heading above the candidate.
    pub(super) fn topic(&self) -> &str {
        self.question.as_deref().unwrap_or(&self.heading)
    }

    /// The candidate with its topic.
    pub(super) fn with_topic(&self) -> String {
        joined(self.topic(), &self.body)
    }

    /// The candidate with its topic and the sentence before it.
    pub(super) fn with_context(&self) -> String {
        match &self.before {
            Some(before) if !self.body.starts_with(before.as_str()) => {
                joined(self.topic(), &format!("{before} {}", self.body))
            }
            _ => self.with_topic(),
        }
    }
}

fn joined(topic: &str, body: &str) -> String {
    if topic.is_empty() { body.to_owned() } else { format!("{topic}: {body}") }
}

/// Collects candidates in the order of the texts.
#[derive(Default)]
pub(super) struct CandidateReader {
    candidates: Vec<Candidate>,
    section: usize,
    document: String,
    heading: String,
    /// Whether a title of a whole document is the heading.
    is_title: bool,
    question: Option<String>,
    /// Whether the question is a heading. The answer to another one ends with a line.
    is_question_heading: bool,
    /// The line before a list, without its colon.
    list_intro: Option<String>,
    /// The short items of the list that is being read.
    items: Vec<String>,
    columns: Vec<String>,
    paragraph: Vec<String>,
    headings: Vec<(String, bool)>,
}

impl CandidateReader {
    /// Reads passages. Adjacent passages of one document continue each other.
    pub(super) fn read_passages(&mut self, passages: &[Snippet]) {
        for passage in passages {
            if passage.doc_id != self.document {
                self.start_text();
                self.document.clone_from(&passage.doc_id);
            }
            self.read_text(&passage.text);
        }
    }

    /// Reads sentences of a text without headings. `transform` changes or drops each.
    pub(super) fn read_sentences(
        &mut self,
        text: &str,
        origin: Origin,
        transform: impl Fn(&str) -> Option<String>,
    ) {
        self.start_text();
        for sentence in sentences(text).iter().filter_map(|sentence| transform(sentence)) {
            self.add(&sentence, speakable(&sentence), origin);
        }
    }

    /// The candidates, and the headings with a flag for titles of documents.
    pub(super) fn finish(mut self) -> (Vec<Candidate>, Vec<(String, bool)>) {
        self.end_list();
        (self.candidates, self.headings)
    }

    fn start_text(&mut self) {
        self.end_list();
        self.section += 1;
        self.heading.clear();
        self.question = None;
        self.list_intro = None;
        self.columns.clear();
        self.document.clear();
    }

    fn read_text(&mut self, text: &str) {
        let labels = &Phrases::english().knowledge;
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let is_row = line.starts_with('|');
            if !is_row && !line.is_empty() {
                self.columns.clear();
            }
            if list_item(line).is_none() {
                self.end_list();
            }
            let plain = line.trim_matches(['*', '_']).trim();
            let strip = |labels: &[String]| {
                labels.iter().find_map(|label| plain.strip_prefix(label.as_str())).map(str::trim)
            };
            if line.is_empty() {
                self.end_paragraph();
            } else if line.starts_with('#') {
                self.end_paragraph();
                let level = line.bytes().take_while(|byte| *byte == b'#').count();
                self.start_section(line.trim_start_matches('#').trim(), level == 1);
            } else if is_row {
                self.end_paragraph();
                self.read_row(line);
            } else if let Some(item) = list_item(line) {
                self.end_paragraph();
                self.add_item(item);
            } else if let Some(question) = strip(&labels.question_labels) {
                self.end_paragraph();
                self.start_question(question);
            } else if let Some(answer) = strip(&labels.answer_labels) {
                self.end_paragraph();
                self.add_line(answer);
            } else if self.paragraph.is_empty()
                && lines
                    .peek()
                    .is_some_and(|next| !next.is_empty() && !next.starts_with(char::is_lowercase))
                && is_heading(plain)
            {
                self.start_section(plain, false);
            } else {
                self.add_line(line);
            }
        }
        self.end_paragraph();
    }

    /// Adds a line to the paragraph. Passages have no blank lines, so a line that ends a sentence
    /// also ends the answer to a question.
    fn add_line(&mut self, line: &str) {
        self.paragraph.push(line.to_owned());
        if self.question.is_none() || self.is_question_heading || !line.ends_with(['.', '!']) {
            return;
        }
        self.end_paragraph();
        let is_answer = |candidate: &Candidate| candidate.section == self.section;
        if self.candidates.last().is_some_and(is_answer) {
            self.question = None;
            self.section += 1;
        }
    }

    fn start_section(&mut self, heading: &str, is_title: bool) {
        let heading = heading.trim_matches(['*', '_', ' ', '#']);
        if heading.ends_with('?') {
            self.start_question(heading);
            self.is_question_heading = true;
            return;
        }
        self.section += 1;
        self.heading = heading.to_owned();
        self.is_title = is_title;
        self.question = None;
        self.list_intro = None;
        if !self.headings.iter().any(|(known, _)| known == heading) {
            self.headings.push((heading.to_owned(), is_title));
        }
    }

    fn start_question(&mut self, question: &str) {
        self.section += 1;
        self.question = Some(question.to_owned());
        self.is_question_heading = false;
        self.list_intro = None;
    }

    fn end_paragraph(&mut self) {
        if self.paragraph.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.paragraph).join("\n");
        for sentence in sentences(&text) {
            let sentence = sentence.replace("**", "");
            let sentence = sentence.trim_matches(['*', '_']).trim();
            if sentence.ends_with('?') {
                self.start_question(sentence);
            } else if let Some(intro) = sentence.strip_suffix(':') {
                self.list_intro = Some(intro.to_owned());
            } else {
                let introduced = match self.list_intro.take() {
                    Some(intro) => format!("{intro}: {sentence}"),
                    None => sentence.to_owned(),
                };
                let spoken = if is_short_value(sentence) { &introduced } else { sentence };
                self.add(&introduced, speakable(spoken), Origin::Knowledge);
            }
        }
    }

    fn add_item(&mut self, item: &str) {
        let phrases = &Phrases::english().knowledge;
        let item = item.replace("**", "");
        self.items.push(item.trim_end_matches(['.', ';', ',']).to_owned());
        let intro = self.list_intro.clone();
        let spoken = match item.split_once(": ") {
            Some((label, value)) if is_short_value(value) => {
                phrases.list_item.fill(|placeholder| match placeholder {
                    Placeholder::Field => Some(label.trim().into()),
                    Placeholder::Value => Some(value.trim().trim_end_matches('.').into()),
                    _ => None,
                })
            }
            _ if intro.is_some() && is_short_value(&item) => {
                let intro = intro.as_deref().unwrap_or_default();
                Some(format!("{intro}: {item}"))
            }
            _ => None,
        };
        let spoken = speakable(&spoken.unwrap_or_else(|| item.clone()));
        let text = match &intro {
            Some(intro) => format!("{intro}: {item}"),
            None => item,
        };
        self.add(&text, spoken, Origin::Knowledge);
    }

    /// Adds all items of a list of short items as one candidate.
    fn end_list(&mut self) {
        let items = std::mem::take(&mut self.items);
        let topic = self.list_intro.clone().unwrap_or_else(|| self.heading.clone());
        let verbs = &Phrases::english().knowledge.value_verbs;
        let is_short = |item: &String| {
            let words = normalize_words(item);
            words.len() <= MAX_ITEM_WORDS
                && !item.contains(|c: char| c == ':' || c.is_ascii_digit())
                && !words.iter().any(|word| verbs.contains(word))
        };
        if items.len() < 2 || topic.is_empty() || !items.iter().all(is_short) {
            return;
        }
        let sentence = format!("{topic}: {}", list(&items));
        if sentence.len() < MAX_LIST_BYTES {
            self.add(&sentence, speakable(&sentence), Origin::Knowledge);
        }
    }

    fn read_row(&mut self, line: &str) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':' | ' '))) {
            return;
        }
        if self.columns.is_empty() {
            self.columns = cells.into_iter().map(str::to_owned).collect();
            return;
        }
        let phrases = &Phrases::english().knowledge;
        let Some((row, values)) = cells.split_first() else { return };
        let columns = self.columns.clone();
        for (column, value) in columns.iter().skip(1).zip(values) {
            if !value.chars().any(char::is_alphanumeric) {
                continue;
            }
            let column = lower_first(column);
            let plural = phrases.plural_endings.iter().any(|end| column.ends_with(end.as_str()));
            let template = if plural { &phrases.table_cell_plural } else { &phrases.table_cell };
            let sentence = template.fill(|placeholder| match placeholder {
                Placeholder::Column => Some(column.clone().into()),
                Placeholder::Field => Some(lower_first(row).into()),
                Placeholder::Value => Some(value.trim_end_matches('.').into()),
                _ => None,
            });
            if let Some(sentence) = sentence {
                self.add(&sentence, speakable(&sentence), Origin::Knowledge);
            }
        }
    }

    fn add(&mut self, sentence: &str, spoken: String, origin: Origin) {
        if spoken.is_empty() {
            return;
        }
        let before = self
            .candidates
            .last()
            .filter(|candidate| candidate.section == self.section && candidate.origin == origin)
            .map(|candidate| candidate.sentence.clone());
        let words = normalize_words(sentence);
        let references = &Phrases::english().knowledge.reference_openers;
        let refers = words.first().is_some_and(|word| references.contains(word));
        let alone = spoken.clone();
        let (body, spoken) = match &before {
            Some(before) if refers && before.len() + spoken.len() < super::MAX_ANSWER_BYTES => {
                (format!("{before} {sentence}"), format!("{before} {spoken}"))
            }
            _ => (sentence.to_owned(), spoken),
        };
        self.candidates.push(Candidate {
            sentence: alone,
            spoken,
            body,
            heading: self.heading.clone(),
            question: self.question.clone(),
            before,
            section: self.section,
            origin,
        });
    }
}

/// The items in one phrase: "a, b and c".
pub(super) fn list(items: &[String]) -> String {
    let phrases = &Phrases::english().knowledge;
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => {
            format!("{}{}{last}", first.join(&phrases.list_separator), phrases.list_last)
        }
    }
}

/// The text of a list item.
fn list_item(line: &str) -> Option<&str> {
    for mark in ["- ", "* ", "+ ", "• ", "– "] {
        if let Some(rest) = line.strip_prefix(mark) {
            return Some(rest.trim());
        }
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line[digits..].strip_prefix(['.', ')'])?;
    ((1..=3).contains(&digits) && rest.starts_with(' ')).then(|| rest.trim())
}

/// Whether a line is a heading without `#`: short, and no sentence.
fn is_heading(line: &str) -> bool {
    let (bytes, words) = MAX_HEADING;
    line.len() < bytes
        && !line.ends_with(['.', '!', ';', '…', ',', ':'])
        && !line.contains(": ")
        && normalize_words(line).len() <= words
}

/// Whether the value of a label is no sentence itself.
fn is_short_value(value: &str) -> bool {
    let words = normalize_words(value);
    let verbs = &Phrases::english().knowledge.value_verbs;
    words.len() <= MAX_VALUE_WORDS && !words.iter().any(|word| verbs.contains(word))
}

/// The text with a small first letter, unless its first word is a name or an abbreviation.
pub(super) fn lower_first(text: &str) -> String {
    let phrases = &Phrases::english().knowledge;
    let first_word = normalize_words(text).into_iter().next().unwrap_or_default();
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), second)
            if second.is_none_or(|_| !text.chars().skip(1).any(char::is_uppercase))
                && !phrases.capitalized.contains(&first_word) =>
        {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Candidate>, Vec<(String, bool)>) {
        let mut reader = CandidateReader::default();
        for chunk in knowledge::chunks(text) {
            reader.read_passages(&[Snippet {
                kb_id: "kb".into(),
                doc_id: "doc".into(),
                text: chunk.text,
                score: 0.0,
            }]);
        }
        reader.finish()
    }

    fn spoken(text: &str) -> Vec<String> {
        read(text).0.into_iter().map(|candidate| candidate.spoken).collect()
    }

    #[test]
    fn sentences_have_their_heading_and_pronouns_their_sentence() {
        let (candidates, headings) = read(
            "# The mill\n\n## Flour\n\nWe grind rye. It is sold in bags.\n\n## Bread\n\nNone.",
        );
        assert_eq!(candidates[1].spoken, "We grind rye. It is sold in bags.");
        assert_eq!(candidates[1].with_context(), "Flour: We grind rye. It is sold in bags.");
        assert_eq!(candidates[2].heading, "Bread");
        let headings: Vec<_> =
            headings.iter().map(|(text, title)| (text.as_str(), *title)).collect();
        assert_eq!(headings, [("The mill", true), ("Flour", false), ("Bread", false)]);
    }

    #[test]
    fn rows_and_items_become_sentences() {
        let table =
            "| Boat | Price | Seats |\n|---|:-:|---|\n| Canoe | 9 euros | 2 |\n| Raft | - | 8 |";
        let cells = spoken(table);
        assert_eq!(cells[0], "The price for canoe is 9 euros.");
        assert_eq!(cells[1..], ["The seats for canoe are 2.", "The seats for raft are 8."]);
        assert_eq!(
            spoken("Fees:\n- Rowers: 5 euros\n- We close at 10."),
            ["Rowers: that is 5 euros.", "We close at 10."]
        );
        let listed = spoken("We sell:\n- oars\n- sails\n- rope");
        assert_eq!(
            (&*listed[0], &*listed[3]),
            ("We sell: oars.", "We sell: oars, sails and rope.")
        );
    }

    #[test]
    fn an_answer_has_its_question() {
        let (candidates, _) = read("Q: Do you rent sails?\nA: Yes, two.\n\n### Is it deep?\nVery.");
        assert_eq!(candidates[0].question.as_deref(), Some("Do you rent sails?"));
        assert_eq!(candidates[0].spoken, "Yes, two.");
        assert_eq!(candidates[1].question.as_deref(), Some("Is it deep?"));
    }
}
