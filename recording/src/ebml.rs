//! Elements of EBML (RFC 8794): an id, a size, and content.

use std::io::{self, Read};

/// The size of an element whose end is the end of the file: eight bytes with all bits set.
pub(crate) const UNKNOWN_SIZE: u64 = (1 << 56) - 1;
/// Length of a size that is written before it is known.
pub(crate) const FIXED_SIZE_BYTES: usize = 8;

/// Appends an id. Its leading bits contain its length.
pub(crate) fn push_id(out: &mut Vec<u8>, id: u32) {
    let bytes = id.to_be_bytes();
    out.extend_from_slice(&bytes[id.leading_zeros() as usize / 8..]);
}

/// Appends a size in as few bytes as possible.
fn push_size(out: &mut Vec<u8>, size: u64) {
    // All bits set means an unknown size.
    let length = (1..8).find(|n| size < (1 << (7 * n)) - 1).unwrap_or(8);
    let bytes = (size | 1 << (7 * length)).to_be_bytes();
    out.extend_from_slice(&bytes[8 - length..]);
}

/// A size in eight bytes.
pub(crate) fn fixed_size(size: u64) -> [u8; FIXED_SIZE_BYTES] {
    (size.min(UNKNOWN_SIZE) | 1 << 56).to_be_bytes()
}

/// Appends an element with this content.
pub(crate) fn push_bytes(out: &mut Vec<u8>, id: u32, content: &[u8]) {
    push_id(out, id);
    push_size(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Appends an unsigned integer.
pub(crate) fn push_uint(out: &mut Vec<u8>, id: u32, value: u64) {
    let skipped = (value.leading_zeros() as usize / 8).min(7);
    push_bytes(out, id, &value.to_be_bytes()[skipped..]);
}

/// Appends an unsigned integer of eight bytes, which can be overwritten.
pub(crate) fn push_fixed_uint(out: &mut Vec<u8>, id: u32, value: u64) {
    push_bytes(out, id, &value.to_be_bytes());
}

/// Appends a floating-point number of eight bytes.
pub(crate) fn push_float(out: &mut Vec<u8>, id: u32, value: f64) {
    push_bytes(out, id, &value.to_be_bytes());
}

/// Appends a text.
pub(crate) fn push_text(out: &mut Vec<u8>, id: u32, text: &str) {
    push_bytes(out, id, text.as_bytes());
}

/// Appends an element that contains the elements that `fill` appends.
pub(crate) fn push_master(out: &mut Vec<u8>, id: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    fill(&mut content);
    push_bytes(out, id, &content);
}

/// An element that was read.
pub(crate) struct Element {
    pub(crate) id: u32,
    /// `None` = up to the end of the file.
    pub(crate) size: Option<u64>,
}

/// Reads the id and the size of an element; `None` at the end of the file, also in the middle of
/// them, and if they are not valid.
pub(crate) fn read_element(input: &mut impl Read) -> io::Result<Option<Element>> {
    let Some((id, _)) = read_number(input, 4, false)? else { return Ok(None) };
    let Some((size, is_known)) = read_number(input, 8, true)? else { return Ok(None) };
    let id = u32::try_from(id).unwrap_or_default();
    Ok(Some(Element { id, size: is_known.then_some(size) }))
}

/// Reads a number of at most `longest` bytes, without its length marker if `strip`. The second value
/// is false if all of its bits are set.
fn read_number(
    input: &mut impl Read,
    longest: usize,
    strip: bool,
) -> io::Result<Option<(u64, bool)>> {
    let mut bytes = [0; 8];
    if !read_all(input, &mut bytes[..1])? {
        return Ok(None);
    }
    let length = bytes[0].leading_zeros() as usize + 1;
    if length > longest || !read_all(input, &mut bytes[1..length])? {
        return Ok(None);
    }
    let number = u64::from_be_bytes(bytes) >> (8 * (8 - length));
    let content = number & ((1 << (7 * length)) - 1);
    let is_known = content != (1 << (7 * length)) - 1;
    Ok(Some((if strip { content } else { number }, is_known)))
}

/// Fills `bytes`; false if the file ends before.
pub(crate) fn read_all(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The elements in the content of an element, up to the first one that is not complete.
pub(crate) fn children(mut content: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || next_child(&mut content))
}

/// Takes the next element from the content of an element; `None` if it is not complete.
pub(crate) fn next_child<'a>(content: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let element = read_element(content).ok()??;
    let size = usize::try_from(element.size?).ok()?;
    let (inner, rest) = content.split_at_checked(size)?;
    *content = rest;
    Some((element.id, inner))
}

/// The value of an unsigned integer of at most eight bytes.
pub(crate) fn uint(content: &[u8]) -> Option<u64> {
    (content.len() <= 8)
        .then(|| content.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_all_sizes_are_read_as_they_were_written() {
        for size in [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 3_000_000] {
            for id in [0xa3, 0x42f7, 0x2a_d7b1, 0x1f43_b675] {
                let mut out = Vec::new();
                push_bytes(&mut out, id, &vec![7; size]);
                let mut input = &out[..];
                let element = read_element(&mut input).unwrap().unwrap();
                assert_eq!((element.id, element.size), (id, Some(size as u64)));
                assert_eq!(input, vec![7; size]);
            }
        }
    }

    #[test]
    fn a_fixed_size_may_be_unknown() {
        let mut out = Vec::new();
        for size in [5, UNKNOWN_SIZE] {
            push_id(&mut out, 0x1853_8067);
            out.extend(fixed_size(size));
        }
        let mut input = &out[..];
        assert_eq!(read_element(&mut input).unwrap().unwrap().size, Some(5));
        assert_eq!(read_element(&mut input).unwrap().unwrap().size, None);
        assert!(read_element(&mut input).unwrap().is_none());
    }

    #[test]
    fn integers_keep_their_value_and_damaged_elements_end_the_list() {
        let mut out = Vec::new();
        for value in [0, 1, 255, 256, u64::MAX] {
            push_uint(&mut out, 0xe7, value);
        }
        let values: Vec<_> = children(&out).map(|(_, content)| uint(content).unwrap()).collect();
        assert_eq!(values, [0, 1, 255, 256, u64::MAX]);
        assert_eq!(children(&out[..out.len() - 1]).count(), 4);
        assert_eq!(children(&[0, 0, 0]).count(), 0);
        assert_eq!(children(&[0xa3, 0xff, 1]).count(), 0, "an unknown size has no end here");
        assert_eq!(uint(&[0; 9]), None);
    }
}
