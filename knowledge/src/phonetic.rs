//! A rough phonetic key: words that the STT confuses should have the same key.

/// The sounds of a word, four bits each, the first in the lowest bits; at most sixteen. 0 means
/// that no sound is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PhoneticKey(u64);

impl PhoneticKey {
    /// The key of `word` (lower case).
    pub(crate) fn new(word: &str) -> Self {
        const CODES: &str = "APFTSXKLRMNW";
        let code = |c| CODES.find(c).map_or(0, |i| i as u64 + 1);
        Self(
            phonetic_code(word)
                .chars()
                .take(16)
                .enumerate()
                .fold(0, |packed, (i, c)| packed | code(c) << (4 * i)),
        )
    }

    /// Number of sounds.
    pub(crate) fn len(self) -> u32 {
        (64 - self.0.leading_zeros()).div_ceil(4)
    }

    /// Whether the keys differ by at most one inserted, deleted or replaced sound. It takes some
    /// nanoseconds, because all words of an index are tried.
    pub(crate) fn is_similar(self, other: Self) -> bool {
        let (long, short) =
            if self.len() >= other.len() { (self.0, other.0) } else { (other.0, self.0) };
        let alike = (long ^ short).trailing_zeros() / 4;
        let rest = |packed: u64, from: u32| if from >= 16 { 0 } else { packed >> (4 * from) };
        match self.len().abs_diff(other.len()) {
            0 => rest(long, alike + 1) == rest(short, alike + 1),
            1 => rest(long, alike + 1) == rest(short, alike),
            _ => false,
        }
    }
}

/// The phonetic code of a lower-case word: its consonants in classes. Voiced and unvoiced
/// consonants are equal, doubles count once, and vowels count only at the start. A coarse relative
/// of Metaphone (L. Philips, 1990). Empty for words without ASCII letters.
fn phonetic_code(word: &str) -> String {
    let letters: Vec<u8> = word.bytes().filter(u8::is_ascii_lowercase).collect();
    let mut key = String::with_capacity(letters.len());
    let mut at = 0;
    while at < letters.len() {
        let rest = &letters[at..];
        let next = |n: usize| rest.get(n).copied().unwrap_or(0);
        let soft = matches!(next(1), b'e' | b'i' | b'y');
        let (sound, length) = match (rest[0], next(1), next(2)) {
            // The first is silent.
            (b'k' | b'g', b'n', _) | (b'w', b'r', _) | (b'p', b's', _) if at == 0 => ("", 1),
            (b't', b'i', b'o' | b'a') | (b's', b'i', b'o') => ("X", 2),
            (b's', b'c', b'h') => ("X", 3),
            (b't', b'c', b'h') => ("X", 3),
            (b's' | b'c', b'h', _) => ("X", 2),
            (b'p', b'h', _) => ("F", 2),
            (b't', b'h', _) => ("T", 2),
            (b'g', b'h', _) => (if at == 0 { "K" } else { "" }, 2),
            (b'd', b'g', _) => ("X", 2),
            (b'c', b'k', _) => ("K", 2),
            (b'q', b'u', _) => ("K", 2),
            (b's', b'c', b'e' | b'i') => ("S", 2),
            (b'x', ..) => (if at == 0 { "S" } else { "KS" }, 1),
            (b'c', ..) => (if soft { "S" } else { "K" }, 1),
            (b'g', ..) => (if soft { "X" } else { "K" }, 1),
            (b'j', ..) => ("X", 1),
            (b'k' | b'q', ..) => ("K", 1),
            (b'b' | b'p', ..) => ("P", 1),
            (b'f' | b'v', ..) => ("F", 1),
            (b't' | b'd', ..) => ("T", 1),
            (b's' | b'z', ..) => ("S", 1),
            (b'l', ..) => ("L", 1),
            (b'm', ..) => ("M", 1),
            (b'n', ..) => ("N", 1),
            (b'r', ..) => ("R", 1),
            (b'w' | b'y' | b'h', b'a' | b'e' | b'i' | b'o' | b'u', _) if at == 0 => {
                (if rest[0] == b'w' { "W" } else { "A" }, 2)
            }
            (b'a' | b'e' | b'i' | b'o' | b'u', ..) if at == 0 => ("A", 1),
            _ => ("", 1),
        };
        for c in sound.chars() {
            // A repeated consonant sounds twice across a vowel, and once directly after itself.
            let vowel_before =
                at > 0 && matches!(letters[at - 1], b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
            if !key.ends_with(c) || vowel_before {
                key.push(c);
            }
        }
        at += length;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_sound_alike_have_one_key() {
        for (a, b) in [
            ("zorblax", "soreblacks"),
            ("phone", "fone"),
            ("night", "nite"),
            ("knight", "night"),
            ("catherine", "katharine"),
            ("meyer", "mier"),
            ("nation", "nashun"),
            ("bridge", "brij"),
            ("quick", "kwik"),
            ("bob", "pop"),
            ("quillontra", "quillontrah"),
            ("write", "rite"),
        ] {
            assert_eq!(phonetic_code(a), phonetic_code(b), "{a} {b}");
        }
    }

    #[test]
    fn words_that_sound_otherwise_have_others() {
        for (a, b) in [
            ("price", "prize fight"),
            ("monday", "sunday"),
            ("ship", "sheep skin"),
            ("apple", "maple"),
            ("data", "date line"),
        ] {
            assert_ne!(phonetic_code(a), phonetic_code(b), "{a} {b}");
        }
        assert_eq!(PhoneticKey::new("42"), PhoneticKey::default());
        assert_eq!(PhoneticKey::new("42").len(), 0);
    }

    #[test]
    fn one_sound_of_difference_is_near() {
        let near = |a, b| PhoneticKey::new(a).is_similar(PhoneticKey::new(b));
        assert!(
            near("zorblax", "zorblax")
                && near("zorblax", "zorblak")
                && near("orblax", "zorblax")
                && near("zorblax", "zornlax")
        );
        assert!(
            !near("zorblax", "zorna") && !near("zorblax", "blax") && !near("zorblax", "blaxzor")
        );
        assert_eq!(PhoneticKey::new("zorblax").len(), 6);
        let long = "badagafalamanarasatavazabadaga";
        assert_eq!(PhoneticKey::new(long).len(), 15);
        assert!(near(long, &long[2..]) && near(&format!("{long}ba"), &format!("{long}ba")));
    }
}
