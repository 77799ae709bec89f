//! Bytes as steps, each of a kind, a length (two bytes, big-endian) and so many bytes. What is left at the end is a step, too.

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What is done; a target takes it modulo the number of its kinds.
    pub kind: u8,
    /// With what.
    pub bytes: &'a [u8],
}

/// The steps that these bytes hold, at most `most`.
pub fn steps(mut bytes: &[u8], most: usize) -> impl Iterator<Item = Step<'_>> {
    std::iter::from_fn(move || {
        let [kind, rest @ ..] = bytes else { return None };
        let (length, rest) = match rest {
            [high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            rest => (rest.len(), rest),
        };
        let (taken, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        Some(Step { kind: *kind, bytes: taken })
    })
    .take(most)
}

/// Changes a datagram as `patches` say: four bytes each, a place (two bytes, modulo the length) and what is XORed to it and to the
/// byte behind it; a rest of two bytes cuts the datagram at that place.
pub fn damage(datagram: &mut Vec<u8>, patches: &[u8]) {
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
