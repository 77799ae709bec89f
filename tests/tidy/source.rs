//! Source code as the checks of this folder read it.

use std::path::{Path, PathBuf};

/// A blank in place of a character; lines stay.
fn blank(c: char) -> char {
    if c == '\n' { '\n' } else { ' ' }
}

/// Rust with comments, strings and characters blanked out; lines stay.
pub(crate) fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let at = |i: usize| bytes.get(i).copied().unwrap_or('\0');
    let mut i = 0;
    while i < bytes.len() {
        let previous = if i == 0 { '\0' } else { bytes[i - 1] };
        let in_word = previous.is_alphanumeric() || previous == '_';
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => (i..bytes.len()).find(|j| bytes[*j] == '\n').unwrap_or(bytes.len()),
            ('/', '*') => (i + 2..bytes.len())
                .find(|j| at(*j) == '*' && at(j + 1) == '/')
                .map_or(bytes.len(), |j| j + 2),
            ('"', _) => string_end(&bytes, i),
            ('r', '"' | '#') if !in_word => raw_string_end(&bytes, i + 1).unwrap_or(i),
            ('b', 'r') if !in_word => raw_string_end(&bytes, i + 2).unwrap_or(i),
            ('\'', '\\') => (i + 3..bytes.len()).find(|j| bytes[*j] == '\'').map_or(i, |j| j + 1),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(bytes[i]);
            i += 1;
        } else {
            out.extend(bytes[i..end].iter().copied().map(blank));
            i = end;
        }
    }
    out
}

fn string_end(text: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(text.len())
}

/// The end of a raw string whose `#`s begin at `start`; `None` if there is none (`r#type`).
fn raw_string_end(text: &[char], start: usize) -> Option<usize> {
    let hashes = text[start..].iter().take_while(|c| **c == '#').count();
    if text.get(start + hashes) != Some(&'"') {
        return None;
    }
    (start + hashes + 1..text.len()).find_map(|i| {
        let closes =
            text[i] == '"' && text[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        closes.then_some(i + 1 + hashes)
    })
}

/// Python or JavaScript with comments, strings and regular expressions blanked out; lines stay. The
/// code in the `${…}` of a JavaScript template stays, too.
pub(crate) fn script_code(text: &str, is_python: bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    // For each template around the position: the number of open braces in its `${…}`.
    let mut templates: Vec<usize> = Vec::new();
    // The last character of the code that is no space: it decides what a `/` begins.
    let mut previous = '\0';
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let resumes_template = c == '}' && templates.last() == Some(&0);
        let length = if resumes_template {
            templates.pop();
            template_length(&chars[i..])
        } else {
            literal_length(&chars[i..], previous, is_python)
        };
        if length == 0 {
            if let Some(braces) = templates.last_mut() {
                match c {
                    '{' => *braces += 1,
                    '}' => *braces -= 1,
                    _ => {}
                }
            }
            if !c.is_whitespace() {
                previous = c;
            }
            out.push(c);
            i += 1;
        } else {
            let end = i + length;
            let is_template = resumes_template || (c == '`' && !is_python);
            if is_template && chars[end - 1] == '{' {
                templates.push(0);
            }
            if c != '/' && c != '#' {
                previous = chars[end - 1];
            }
            out.extend(chars[i..end].iter().copied().map(blank));
            i = end;
        }
    }
    out
}

/// The length of the comment, string or regular expression that begins here; 0 if none does.
fn literal_length(rest: &[char], previous: char, is_python: bool) -> usize {
    let at = |i: usize| rest.get(i).copied().unwrap_or('\0');
    match at(0) {
        '#' if is_python => line_length(rest),
        quote @ ('"' | '\'') if is_python && at(1) == quote && at(2) == quote => {
            length_to(rest, 3, &[quote, quote, quote])
        }
        quote @ ('"' | '\'') => length_to(rest, 1, &[quote]),
        '`' if !is_python => template_length(rest),
        '/' if is_python => 0,
        '/' if at(1) == '/' => line_length(rest),
        '/' if at(1) == '*' => length_to(rest, 2, &['*', '/']),
        '/' if "(,=:[!&|?{;>\0".contains(previous) => length_to(rest, 1, &['/']),
        _ => 0,
    }
}

fn line_length(rest: &[char]) -> usize {
    rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
}

/// The length up to and including the first `end` at or after `from` that is not escaped.
fn length_to(rest: &[char], from: usize, end: &[char]) -> usize {
    let mut i = from;
    while i < rest.len() && !rest[i..].starts_with(end) {
        i += if rest[i] == '\\' { 2 } else { 1 };
    }
    (i + end.len()).min(rest.len())
}

/// The length of the part of a template that begins here, up to its `${` or its end.
fn template_length(rest: &[char]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            '`' => return i + 1,
            '$' if rest.get(i + 1) == Some(&'{') => return i + 2,
            _ => i += 1,
        }
    }
    rest.len()
}

/// The end of the block whose `{` is at or after `start`.
fn block_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (i, c) in code[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return start + i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Code without its inline test modules.
pub(crate) fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut out = String::new();
    while let Some(at) = rest.find("#[cfg(test)]") {
        let behind = &rest[at..];
        let item = behind.find(['{', ';']).unwrap_or(behind.len() - 1);
        let end = if behind.as_bytes()[item] == b'{' { block_end(behind, item) } else { item + 1 };
        out.push_str(&rest[..at]);
        rest = &behind[end..];
    }
    out + rest
}

/// All Rust files of a folder, by name; a missing folder has none.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return files };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                files.extend(rust_files(&path));
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    files
}
