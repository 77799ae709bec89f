//! Samples from the body of a response: raw ones, or those of a WAV file.

use super::SAMPLE_RATE;
use crate::tts::hosted::samples::SampleReader;

/// Maximum size of the part of a WAV file before its samples, in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Sample rates that a voice may have, in Hz.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;

/// Decoder of one response.
#[derive(Debug)]
pub(super) struct ResponseDecoder {
    sample_rate: u32,
    reader: SampleReader,
    /// The header of a WAV file so far; `None` in the samples.
    header: Option<Vec<u8>>,
}

impl ResponseDecoder {
    /// The decoder for the type of a response. `requested`: the format that was requested, for a
    /// response without a type.
    ///
    /// # Errors
    /// What the server did, as the end of a sentence.
    pub(super) fn new(content_type: &str, requested: &str) -> Result<Self, String> {
        let content_type = content_type.to_ascii_lowercase();
        let mut parts = content_type.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut decoder =
            Self { sample_rate: SAMPLE_RATE, reader: SampleReader::default(), header: None };
        match kind {
            "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => {
                decoder.header = Some(Vec::new());
            }
            "" | "application/octet-stream" if requested == "wav" => {
                decoder.header = Some(Vec::new());
            }
            ""
            | "application/octet-stream"
            | "audio/pcm"
            | "audio/l16"
            | "audio/x-pcm"
            | "audio/raw" => {
                let rate = parts.find_map(|part| part.strip_prefix("rate=")?.parse().ok());
                decoder.set_rate(rate.unwrap_or(SAMPLE_RATE))?;
            }
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("sends {other:?} instead of pcm or wav"));
            }
        }
        Ok(decoder)
    }

    fn set_rate(&mut self, rate: u32) -> Result<(), String> {
        if !SAMPLE_RATES.contains(&rate) {
            return Err(format!("sends audio at {rate} Hz, which is not supported"));
        }
        self.sample_rate = rate;
        Ok(())
    }

    /// In Hz; valid when there are samples.
    pub(super) fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// The samples that are complete with these bytes.
    ///
    /// # Errors
    /// What is wrong with the file, as the end of a sentence.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<i16>, String> {
        let Some(mut header) = self.header.take() else { return Ok(self.reader.read(bytes)) };
        header.extend_from_slice(bytes);
        match parse_header(&header)? {
            Some((rate, start)) => {
                self.set_rate(rate)?;
                Ok(self.reader.read(&header[start..]))
            }
            None if header.len() > MAX_HEADER_BYTES => {
                Err("sends a wav file without samples".to_owned())
            }
            None => {
                self.header = Some(header);
                Ok(Vec::new())
            }
        }
    }
}

/// Sample rate, and position of the first sample, of a WAV file (RIFF, Microsoft 1991) with 16-bit
/// samples and one channel. `None` while the header is not complete. The sizes of the file and of
/// its samples are ignored, because a stream does not know them.
fn parse_header(bytes: &[u8]) -> Result<Option<(u32, usize)>, String> {
    let known = bytes.len().min(4);
    let is_wave = bytes.get(8..12).is_none_or(|kind| kind == b"WAVE");
    if bytes[..known] != b"RIFF"[..known] || !is_wave {
        return Err("sends a damaged wav file".to_owned());
    }
    let number = |at: usize, size: usize| -> Option<u32> {
        let bytes = bytes.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    let mut at = 12;
    let mut rate = None;
    while let Some(size) = number(at + 4, 4) {
        match &bytes[at..at + 4] {
            b"fmt " => {
                let Some(bits) = number(at + 22, 2) else { return Ok(None) };
                let (format, channels) = (number(at + 8, 2), number(at + 10, 2));
                // 0xfffe: the format is in an extension, which is the same for 16-bit samples.
                if !matches!(format, Some(1 | 0xfffe)) || channels != Some(1) || bits != 16 {
                    return Err("sends a wav file that is not mono with 16 bits".to_owned());
                }
                rate = number(at + 12, 4);
            }
            b"data" => {
                let rate = rate.ok_or_else(|| "sends a damaged wav file".to_owned())?;
                return Ok(Some((rate, at + 8)));
            }
            _ => {}
        }
        // Chunks begin at even positions.
        let step = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1) & !1;
        let Some(next) = at.checked_add(8).and_then(|at| at.checked_add(step)) else {
            return Err("sends a damaged wav file".to_owned());
        };
        if next > MAX_HEADER_BYTES {
            return Err("sends a damaged wav file".to_owned());
        }
        at = next;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A streamed file with another chunk before its samples.
    fn wav(rate: u32, channels: u16, bits: u16, samples: &[i16]) -> Vec<u8> {
        let mut file = b"RIFF\xff\xff\xff\xffWAVELIST\x03\0\0\0abc\0fmt \x10\0\0\0\x01\0".to_vec();
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend((rate * 2).to_le_bytes());
        file.extend(2u16.to_le_bytes());
        file.extend(bits.to_le_bytes());
        file.extend(b"data\xff\xff\xff\xff");
        file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
        file
    }

    fn decode(decoder: &mut ResponseDecoder, chunks: &[&[u8]]) -> Result<Vec<i16>, String> {
        let mut samples = Vec::new();
        for chunk in chunks {
            samples.extend(decoder.push(chunk)?);
        }
        Ok(samples)
    }

    #[test]
    fn a_wav_file_may_be_cut_anywhere() {
        let samples = [1, -2, 3_000, -30_000];
        let file = wav(48_000, 1, 16, &samples);
        for cut in 0..=file.len() {
            let mut decoder = ResponseDecoder::new("audio/wav", "pcm").unwrap();
            let (first, second) = file.split_at(cut);
            assert_eq!(decode(&mut decoder, &[first, second]).unwrap(), samples, "cut at {cut}");
            assert_eq!(decoder.sample_rate(), 48_000);
        }
        let mut decoder = ResponseDecoder::new("", "wav").unwrap();
        let bytes: Vec<&[u8]> = file.chunks(1).collect();
        assert_eq!(decode(&mut decoder, &bytes).unwrap(), samples);
    }

    #[test]
    fn another_or_damaged_file_is_refused() {
        let refused = |file: &[u8]| {
            let mut decoder = ResponseDecoder::new("audio/x-wav; a=b", "").unwrap();
            decoder.push(file).unwrap_err()
        };
        let not_mono = "sends a wav file that is not mono with 16 bits";
        assert_eq!(refused(&wav(24_000, 2, 16, &[1])), not_mono);
        assert_eq!(refused(&wav(24_000, 1, 8, &[1])), not_mono);
        assert_eq!(
            refused(&wav(96_000, 1, 16, &[1])),
            "sends audio at 96000 Hz, which is not supported"
        );
        let damaged = "sends a damaged wav file";
        assert_eq!(refused(b"ID3 an mp3 file"), damaged);
        assert_eq!(refused(b"RIFF\0\0\0\0WAVEdata\0\0\0\0"), damaged);
        assert_eq!(refused(b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff"), damaged);
        assert_eq!(refused(b"RIFF\0\0\0\0AVI "), damaged);
    }

    #[test]
    fn the_type_of_the_response_decides() {
        let rate =
            |kind: &str| ResponseDecoder::new(kind, "pcm").map(|decoder| decoder.sample_rate());
        assert_eq!(rate("audio/pcm"), Ok(24_000));
        assert_eq!(rate("audio/L16; rate=16000; channels=1"), Ok(16_000));
        assert_eq!(rate("application/octet-stream"), Ok(24_000));
        assert_eq!(
            rate("audio/l16;rate=1"),
            Err("sends audio at 1 Hz, which is not supported".into())
        );
        assert_eq!(rate("audio/mpeg"), Err("sends \"audio/mpeg\" instead of pcm or wav".into()));
        assert_eq!(
            rate("text/event-stream; charset=utf-8"),
            Err("sends \"text/event-stream\" instead of pcm or wav".into())
        );
    }
}
