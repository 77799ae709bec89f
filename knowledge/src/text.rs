//! Splits text into chunks and sentences.

use unicode_segmentation::UnicodeSegmentation;

/// A part of a document, small enough to be read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the chunk within the document: 0, 1, 2 …
    pub ordinal: u32,
    /// The text, with its line breaks.
    pub text: String,
}

/// Paragraphs are joined up to this size, bytes.
const TARGET_CHUNK_BYTES: usize = 500;

/// Maximum size of a chunk, bytes.
const MAX_CHUNK_BYTES: usize = 900;

/// Splits `text` between paragraphs, long paragraphs between sentences, and long sentences between
/// words. A heading stays with the text that follows it.
#[must_use]
pub fn chunks(text: &str) -> Vec<Chunk> {
    let mut finished: Vec<String> = Vec::new();
    let mut current = String::new();
    let mut heading = true; // a heading stays with the next paragraph
    for paragraph in paragraphs(text) {
        let is_heading = is_heading(&paragraph);
        let fits = current.len() + 1 + paragraph.len()
            <= if heading { MAX_CHUNK_BYTES } else { TARGET_CHUNK_BYTES };
        if !current.is_empty()
            && (!fits
                || (is_heading
                    && !heading
                    && (paragraph.starts_with('#') || current.len() > TARGET_CHUNK_BYTES / 4)))
        {
            finished.push(std::mem::take(&mut current));
        }
        for part in split_paragraph(&paragraph) {
            if !current.is_empty() && current.len() + 1 + part.len() > MAX_CHUNK_BYTES {
                finished.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push('\n');
            }
            current.push_str(part);
        }
        heading = is_heading;
    }
    if !current.is_empty() {
        finished.push(current);
    }
    (0..).zip(finished).map(|(ordinal, text)| Chunk { ordinal, text }).collect()
}

/// The paragraphs, with trimmed lines. Blank lines and headings separate them.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut current = String::new();
    for line in text.lines().map(str::trim) {
        if (line.is_empty() || line.starts_with('#')) && !current.is_empty() {
            all.push(std::mem::take(&mut current));
        }
        if !line.is_empty() {
            if !current.is_empty() {
                current.push('\n');
            }
            current.push_str(line);
        }
        if line.starts_with('#') {
            all.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        all.push(current);
    }
    all
}

/// Whether a paragraph is one short line that does not end a sentence, or starts with `#`.
fn is_heading(paragraph: &str) -> bool {
    paragraph.starts_with('#')
        || (paragraph.len() < 80
            && !paragraph.contains('\n')
            && !ends_sentence(paragraph)
            && !is_list_item(paragraph))
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(['"', '\'', ')', '”', '’', '*', '_'])
        .ends_with(['.', '!', '?', ';', '。', '！', '？', '…'])
}

/// Splits a paragraph into parts of at most [`MAX_CHUNK_BYTES`] bytes.
fn split_paragraph(paragraph: &str) -> Vec<&str> {
    if paragraph.len() <= MAX_CHUNK_BYTES {
        return vec![paragraph];
    }
    let mut parts = Vec::new();
    let (mut from, mut to) = (0, 0);
    for (start, fragment) in
        paragraph.split_sentence_bound_indices().flat_map(|(start, sentence)| {
            let whole = sentence.len() <= MAX_CHUNK_BYTES;
            // A too long sentence (a table, a list of names) is split between words, and a too long
            // word between characters.
            let fragments: Vec<(usize, &str)> = if whole {
                vec![(0, sentence)]
            } else {
                sentence.split_word_bound_indices().collect()
            };
            let fragments: Vec<(usize, &str)> = fragments
                .into_iter()
                .flat_map(|(at, p)| {
                    if p.len() <= MAX_CHUNK_BYTES {
                        vec![(at, p)]
                    } else {
                        p.char_indices().map(|(i, c)| (at + i, &p[i..i + c.len_utf8()])).collect()
                    }
                })
                .collect();
            fragments.into_iter().map(move |(at, fragment)| (start + at, fragment))
        })
    {
        if start + fragment.len() - from > MAX_CHUNK_BYTES {
            parts.push(paragraph[from..to].trim());
            from = start;
        }
        to = start + fragment.len();
    }
    parts.push(paragraph[from..to].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// The sentences of `text`, without list and heading markers. A line break ends a sentence, unless
/// the text clearly continues in the next line.
#[must_use]
pub fn sentences(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let line = line.trim();
        let item = is_list_item(line) || line.starts_with('#');
        let line = strip_marker(line);
        if line.is_empty() {
            continues = false;
            continue;
        }
        let lower = line.chars().next().is_some_and(char::is_lowercase);
        match lines.last_mut() {
            // The text was wrapped by an editor: the line was long, or the next one starts in
            // mid-sentence.
            Some(last) if continues && !item && (lower || last.len() >= 60) => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
        continues = !ends_sentence(line) && !line.ends_with(':');
    }
    lines.iter().flat_map(|line| split_line(line)).collect()
}

fn is_list_item(line: &str) -> bool {
    strip_marker(line).len() < line.len() && !line.starts_with('#')
}

/// The line without its heading or list marker.
fn strip_marker(line: &str) -> &str {
    let line = line.trim_start_matches('#').trim_start();
    for mark in ["- ", "* ", "+ ", "• ", "– ", "> "] {
        if let Some(rest) = line.strip_prefix(mark) {
            return rest.trim_start();
        }
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    match line[digits..].strip_prefix(['.', ')']) {
        Some(rest) if (1..=3).contains(&digits) && rest.starts_with(' ') => rest.trim_start(),
        _ => line,
    }
}

/// The sentences of a line (UAX 29); splits after abbreviations are undone.
fn split_line(line: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut joins = false;
    for sentence in line.split_sentence_bounds() {
        match all.last_mut() {
            Some(last) if joins => last.push_str(sentence),
            _ => all.push(sentence.to_owned()),
        }
        joins = all.last().is_some_and(|sentence| ends_with_abbreviation(sentence.trim_end()));
    }
    all.into_iter()
        .map(|sentence| sentence.trim().to_owned())
        .filter(|sentence| !sentence.is_empty())
        .collect()
}

fn ends_with_abbreviation(sentence: &str) -> bool {
    const ABBREVIATIONS: [&str; 18] = [
        "dr", "mr", "mrs", "ms", "prof", "st", "no", "vs", "approx", "inc", "ltd", "co", "e.g",
        "i.e", "fig", "dept", "tel", "jr",
    ];
    let Some(rest) = sentence.strip_suffix('.') else { return false };
    let last = rest.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let initial = last.chars().count() == 1 && last.chars().all(char::is_uppercase) && last != "I";
    initial || ABBREVIATIONS.contains(&last.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_paragraphs_share_a_chunk_and_headings_stay_with_their_text() {
        let text = format!(
            "# Hours\n\nWe open at nine.\n\nWe close at five.\n\n# Prices\n\n{}",
            "A ticket costs ten euros. ".repeat(10)
        );
        let chunks = chunks(&text);
        assert_eq!(chunks[0].text, "# Hours\nWe open at nine.\nWe close at five.");
        assert!(chunks[1].text.starts_with("# Prices\nA ticket"), "{:?}", chunks[1].text);
        assert_eq!(
            chunks.iter().map(|chunk| chunk.ordinal).collect::<Vec<_>>(),
            (0..chunks.len() as u32).collect::<Vec<_>>()
        );
    }

    #[test]
    fn no_chunk_is_too_long_and_no_word_is_lost() {
        let long = "Ein sehr langer Satz ohne Ende ".repeat(100);
        let sentences = "This is a sentence of some length that repeats. ".repeat(100);
        let word = "ß".repeat(2000);
        let text = format!("{long}\n\n{sentences}\n\n{word}");
        let chunks = chunks(&text);
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk.text.len() <= MAX_CHUNK_BYTES && !chunk.text.is_empty())
        );
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(
            squeezed(&chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>()),
            squeezed(&text)
        );
    }

    #[test]
    fn an_empty_text_gives_no_chunks() {
        assert!(chunks(" \n\n ").is_empty());
        assert!(sentences(" \n ").is_empty());
    }

    #[test]
    fn text_is_split_at_sentence_ends() {
        assert_eq!(
            sentences("Dr. Smith is in. Ask J. R. Jones, e.g. about pay. Is it 3.5? Yes!").len(),
            4
        );
        assert_eq!(
            sentences("Opening hours:\n- Monday: 9 to 5\n- Sunday: closed\n1. First\n2) Second"),
            ["Opening hours:", "Monday: 9 to 5", "Sunday: closed", "First", "Second"]
        );
    }

    #[test]
    fn wrapped_lines_are_one_sentence() {
        let text = "The clinic is on the second floor of the building at the corner of Main\n\
            Street and opens at nine. It\nis closed on Sunday.";
        assert_eq!(sentences(text).len(), 2);
    }
}
