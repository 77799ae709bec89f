//! Rust source as the checks of this folder read it.

use std::path::{Path, PathBuf};

/// The text with comments, strings and characters blanked out; lines stay.
pub(crate) fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
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
        let closes = text[i] == '"' && text[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        closes.then_some(i + 1 + hashes)
    })
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
