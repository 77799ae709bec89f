//! Extracts the text of a document. Runs in a child process, because an uploaded file must not be
//! able to harm the server.

use std::io::{Cursor, Read as _};

use quick_xml::events::Event;
use serde_json::Value;

/// Maximum number of bytes after decompression of a document's part.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;
/// Maximum number of bytes of text extracted from one document.
const MAX_TEXT_BYTES: usize = 8 << 20;
const TOO_MUCH_TEXT: &str = "contains more than 8 MiB of text: split the document";
/// Line width of rendered HTML: wide, because line breaks are irrelevant for search.
const HTML_LINE_WIDTH: usize = 10_000;

/// The text of a document of type `kind`: pdf, docx, html, json or csv. Others are read as plain
/// text.
///
/// # Errors
/// What is wrong with the document, in one sentence.
pub fn extract(kind: &str, bytes: &[u8]) -> Result<String, String> {
    // The byte order mark. Windows editors write it before UTF-8. It is not text, and JSON does not
    // accept it as white space.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut text = match kind {
        "pdf" => pdf_extract::extract_text_from_mem(bytes)
            .map_err(|e| format!("cannot read the PDF: {e}"))?,
        "docx" => docx(bytes)?,
        "html" => html2text::config::plain_no_decorate()
            .string_from_read(bytes, HTML_LINE_WIDTH)
            .map_err(|e| format!("cannot read the HTML: {e}"))?,
        "json" => json(bytes)?,
        "csv" => csv(bytes)?,
        _ => std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?.to_owned(),
    };
    if text.len() > MAX_TEXT_BYTES {
        return Err(TOO_MUCH_TEXT.into());
    }
    // A text of PostgreSQL cannot contain NUL, and no word does.
    text.retain(|c| c != '\0');
    if text.trim().is_empty() {
        return Err("contains no text".into());
    }
    Ok(text)
}

/// The paragraphs of a word-processing document (ECMA-376, part 1, 17): the text runs `w:t` of
/// `word/document.xml`.
fn docx(bytes: &[u8]) -> Result<String, String> {
    let unreadable = |why: String| format!("cannot read the DOCX: {why}");
    let mut archive =
        zip::ZipArchive::new(Cursor::new(bytes)).map_err(|e| unreadable(e.to_string()))?;
    let part = archive.by_name("word/document.xml").map_err(|e| unreadable(e.to_string()))?;
    let mut xml = Vec::new();
    // The size that the archive declares may be wrong.
    part.take(MAX_UNPACKED_BYTES + 1)
        .read_to_end(&mut xml)
        .map_err(|e| unreadable(e.to_string()))?;
    if xml.len() as u64 > MAX_UNPACKED_BYTES {
        return Err(TOO_MUCH_TEXT.into());
    }
    let xml = String::from_utf8(xml).map_err(|e| unreadable(e.to_string()))?;
    let mut reader = quick_xml::Reader::from_str(&xml);
    let (mut text, mut in_run) = (String::new(), false);
    loop {
        match reader.read_event().map_err(|e| unreadable(e.to_string()))? {
            Event::Start(tag) if tag.local_name().into_inner() == "t" => in_run = true,
            Event::End(tag) => match tag.local_name().into_inner() {
                "t" => in_run = false,
                "p" => text.push_str("\n\n"),
                _ => {}
            },
            Event::Empty(tag) => match tag.local_name().into_inner() {
                "tab" => text.push('\t'),
                "br" | "cr" => text.push('\n'),
                _ => {}
            },
            Event::Text(words) if in_run => text.push_str(&words.xml10_content()),
            Event::CData(words) if in_run => text.push_str(&words),
            Event::GeneralRef(name) if in_run => {
                if let Ok(Some(c)) = name.resolve_char_ref() {
                    text.push(c);
                } else if let Some(known) = quick_xml::escape::resolve_xml_entity(&name) {
                    text.push_str(known);
                }
            }
            Event::Eof => return Ok(text),
            _ => {}
        }
    }
}

/// One line for each value, with its path; each element of a list separately.
fn json(bytes: &[u8]) -> Result<String, String> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| format!("cannot read the JSON: {e}"))?;
    let mut text = String::new();
    flatten_json(&value, "", &mut text);
    Ok(text)
}

fn flatten_json(value: &Value, path: &str, text: &mut String) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
                flatten_json(value, &path, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                flatten_json(item, path, text);
                if item.is_object() || item.is_array() {
                    text.push('\n');
                }
            }
        }
        leaf => {
            let words = leaf.as_str().map_or_else(|| leaf.to_string(), str::to_owned);
            if !path.is_empty() {
                text.push_str(path);
                text.push_str(": ");
            }
            text.push_str(&words);
            text.push('\n');
        }
    }
}

/// One paragraph for each row: `column: value` for each value.
fn csv(bytes: &[u8]) -> Result<String, String> {
    let unreadable = |e: ::csv::Error| format!("cannot read the CSV: {e}");
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    // In many locales, spreadsheets separate columns by semicolons.
    let count_delimiter = |delimiter: u8| first.iter().filter(|b| **b == delimiter).count();
    let delimiter =
        [b'\t', b';', b','].into_iter().max_by_key(|d| count_delimiter(*d)).unwrap_or(b',');
    let mut reader =
        ::csv::ReaderBuilder::new().flexible(true).delimiter(delimiter).from_reader(bytes);
    let names = reader.headers().map_err(unreadable)?.clone();
    let mut text = String::new();
    for row in reader.records() {
        let row = row.map_err(unreadable)?;
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .filter(|(_, cell)| !cell.trim().is_empty())
            .map(|(i, cell)| match names.get(i).map(str::trim) {
                Some(name) if !name.is_empty() => format!("{name}: {}", cell.trim()),
                _ => cell.trim().to_owned(),
            })
            .collect();
        text.push_str(&cells.join("; "));
        text.push_str("\n\n");
    }
    if text.is_empty() {
        text = names.iter().collect::<Vec<_>>().join("; ");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn docx_archive(document: &str) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file("word/document.xml", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(document.as_bytes()).unwrap();
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn a_docx_gives_its_paragraphs() {
        let xml = r#"<?xml version="1.0"?><w:document xmlns:w="x"><w:body><w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr>
            <w:r><w:t>Opening &amp; closing</w:t></w:r></w:p><w:p><w:r><w:t xml:space="preserve">From 9 </w:t></w:r><w:r><w:t>to&#160;18.</w:t><w:br/><w:t>Daily</w:t></w:r></w:p></w:body></w:document>"#;
        assert_eq!(
            extract("docx", &docx_archive(xml)).unwrap(),
            "Opening & closing\n\nFrom 9 to\u{a0}18.\nDaily\n\n"
        );
        assert!(extract("docx", b"PK").unwrap_err().starts_with("cannot read the DOCX"));
    }

    #[test]
    fn html_gives_what_a_reader_sees() {
        let html = b"<html><head><title>x</title><style>p{}</style></head>\
            <body><h1>Hours</h1><p>Open <b>daily</b> &amp; free.</p>\
            <script>var a = 1;</script><ul><li>One</li></ul></body></html>";
        let text = extract("html", html).unwrap();
        assert!(
            text.contains("Hours") && text.contains("Open daily & free.") && text.contains("One"),
            "{text}"
        );
        assert!(!text.contains("var a") && !text.contains("p{}"), "{text}");
    }

    #[test]
    fn json_gives_each_value_with_its_path() {
        let text = extract("json", br#"{"shop": {"open": true}, "items": [{"name": "Rose", "price": 3.5}, {"name": "Lily", "note": null}], "tags": ["a", "b"]}"#).unwrap();
        assert_eq!(
            text,
            "shop open: true\nitems name: Rose\nitems price: 3.5\n\nitems name: Lily\n\ntags: a\n\
             tags: b\n"
        );
        assert!(extract("json", b"{").unwrap_err().starts_with("cannot read the JSON"));
    }

    #[test]
    fn csv_gives_each_row_with_its_columns() {
        let text = extract("csv", "Name,Price\n\"Rose, red\",3\nLily,\n".as_bytes()).unwrap();
        assert_eq!(text, "Name: Rose, red; Price: 3\n\nName: Lily\n\n");
        let text = extract("csv", "\u{feff}Name;Preis\nRose;3,50\n".as_bytes()).unwrap();
        assert_eq!(text, "Name: Rose; Preis: 3,50\n\n");
    }

    #[test]
    fn more_text_than_the_limit_is_an_error_and_not_cut() {
        let longest = "word ".repeat(MAX_TEXT_BYTES / 5);
        assert_eq!(extract("txt", longest.as_bytes()).unwrap(), longest);
        assert_eq!(extract("txt", (longest + "word").as_bytes()).unwrap_err(), TOO_MUCH_TEXT);
        let xml = format!("<w:p><w:t>{}</w:t></w:p>", "w".repeat(MAX_TEXT_BYTES + 1));
        assert_eq!(extract("docx", &docx_archive(&xml)).unwrap_err(), TOO_MUCH_TEXT);
        let unpacked = usize::try_from(MAX_UNPACKED_BYTES).unwrap();
        let xml = format!("<w:p>{}</w:p>", "\u{e9}".repeat(unpacked / 2));
        assert_eq!(extract("docx", &docx_archive(&xml)).unwrap_err(), TOO_MUCH_TEXT);
    }

    #[test]
    fn an_unreadable_document_is_rejected_with_a_reason() {
        assert!(
            extract("pdf", b"%PDF-1.4 and no more").unwrap_err().starts_with("cannot read the PDF")
        );
        assert_eq!(extract("txt", b"\xff").unwrap_err(), "not UTF-8 text");
        assert_eq!(extract("html", b"<p> </p>").unwrap_err(), "contains no text");
    }
}
