//! The text of a video.

use core::time::Duration;

use conversation::script;

/// Maximum input, in bytes: about that of a request.
const MAX_INPUT: usize = 20_000;
/// Maximum text that a voice gets at once, in bytes.
const MAX_SEGMENT: usize = 700;

/// A text with directions.
///
/// # Panics
/// A segment is too long or has nothing to speak, the letters are not those of the text, or a pause
/// is lost.
pub fn script(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT {
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    let script = script::parse(&text);
    let mut gaps = Duration::ZERO;
    // Directions are removed, everything else is spoken in its order.
    let mut letters = text.chars().filter(|c| c.is_alphanumeric());
    for segment in &script.segments {
        assert!(segment.text.len() <= MAX_SEGMENT, "{} bytes", segment.text.len());
        assert!(segment.text.contains(char::is_alphanumeric), "{segment:?}");
        assert_eq!(segment.text.trim(), segment.text);
        for letter in segment.text.chars().filter(|c| c.is_alphanumeric()) {
            assert!(letters.any(|found| found == letter), "{letter} is not in the text");
        }
        gaps += segment.gap;
    }
    assert_eq!(script.pauses, gaps + script.tail);
}
