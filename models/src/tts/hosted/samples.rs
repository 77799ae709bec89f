//! Samples from the bytes of a vendor.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads 16-bit samples, little-endian. A piece of bytes may end in the middle of a sample.
#[derive(Debug, Default)]
pub(in crate::tts) struct SampleReader {
    /// The first byte of a sample whose second one is missing.
    odd: Option<u8>,
    decoded: Vec<u8>,
}

impl SampleReader {
    /// The samples that are complete with these bytes.
    pub(in crate::tts) fn read(&mut self, bytes: &[u8]) -> Vec<i16> {
        let mut samples = Vec::with_capacity(bytes.len() / 2 + 1);
        let mut rest = bytes;
        if let Some(first) = self.odd.take() {
            let Some((second, after)) = rest.split_first() else {
                self.odd = Some(first);
                return samples;
            };
            samples.push(i16::from_le_bytes([first, *second]));
            rest = after;
        }
        let (pairs, odd) = rest.as_chunks::<2>();
        samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        self.odd = odd.first().copied();
        samples
    }

    /// The same from base64; none if it is not valid.
    pub(in crate::tts) fn read_base64(&mut self, text: &str) -> Vec<i16> {
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.clear();
        let samples = match BASE64.decode_vec(text, &mut decoded) {
            Ok(()) => self.read(&decoded),
            Err(_) => Vec::new(),
        };
        self.decoded = decoded;
        samples
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn samples_are_the_same_however_the_bytes_are_cut() {
        let samples: Vec<i16> = (-20..20).map(|n| n * 811).collect();
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        for size in 1..9 {
            let (mut plain, mut coded) = (SampleReader::default(), SampleReader::default());
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for chunk in bytes.chunks(size) {
                a.extend(plain.read(chunk));
                a.extend(plain.read(&[]));
                b.extend(coded.read_base64(&STANDARD.encode(chunk)));
            }
            assert_eq!((&a, &b), (&samples, &samples), "{size}");
        }
        assert!(SampleReader::default().read_base64("no base64!").is_empty());
        let unpadded = STANDARD.encode([1, 0, 2, 0]);
        let unpadded = unpadded.trim_end_matches('=');
        assert_eq!(SampleReader::default().read_base64(unpadded), [1, 2]);
    }
}
