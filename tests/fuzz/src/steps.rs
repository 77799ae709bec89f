//! Parses bytes as steps, each of a kind, a length (two bytes, big-endian) and that number of
//! bytes. Whatever remains at the end is a step, too.

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Kind of the step; a target takes it modulo its number of kinds.
    pub kind: u8,
    /// Data of the step.
    pub bytes: &'a [u8],
}

/// The steps in these bytes, at most `max_steps`.
pub fn parse_steps(mut bytes: &[u8], max_steps: usize) -> impl Iterator<Item = Step<'_>> {
    std::iter::from_fn(move || {
        let [kind, rest @ ..] = bytes else { return None };
        let (length, rest) = match rest {
            [high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            rest => (rest.len(), rest),
        };
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        Some(Step { kind: *kind, bytes: payload })
    })
    .take(max_steps)
}

/// Damages a datagram by `patches` of four bytes. Each is a position (two bytes, modulo the
/// length), and the values to XOR into the byte there and the next one. A remainder of two bytes
/// truncates the datagram at that position.
pub fn corrupt(datagram: &mut Vec<u8>, patches: &[u8]) {
    for patch in patches.chunks(4) {
        if datagram.is_empty() {
            return;
        }
        let at = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low])) % datagram.len();
        match *patch {
            [high, low, first, second] => {
                let at = at(high, low);
                datagram[at] ^= first;
                if let Some(next) = datagram.get_mut(at + 1) {
                    *next ^= second;
                }
            }
            [high, low] => {
                let at = at(high, low);
                datagram.truncate(at);
            }
            _ => {}
        }
    }
}
