//! An audio file, and what a decoder writes.

use documents::{AudioError, PcmReader, Refusal, decode_audio};

/// Maximum input, in bytes. A byte may be 60 ms of sound.
const MAX_INPUT: usize = 8 * 1024;

/// A WAV, MP3 or Ogg file, and the output of a child process that a file has taken over.
///
/// Vorbis is left out: its library allocates what a file of 200 bytes asks for, which ends the
/// confined process (`control-api/tests/api/sandbox.rs`), but would end this one, too.
///
/// # Panics
/// The output of a decoder is not in the form that its reader expects, or has samples outside the
/// limits.
pub fn audio(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT || bytes.windows(6).any(|word| word == b"vorbis") {
        return;
    }
    let _ = read(bytes);
    let mut stream = Vec::new();
    decode_audio(bytes, &mut stream).expect("a vector accepts all");
    match read(&stream) {
        Ok(samples) => assert!(samples > 0, "an empty sound"),
        Err(AudioError::Refused(Refusal::Limits)) => panic!("a stream without an end"),
        Err(AudioError::Refused(_)) => {}
        Err(AudioError::Read(error)) => panic!("{error}"),
    }
}

/// Reads a sound, and returns the number of its samples.
fn read(stream: &[u8]) -> Result<u64, AudioError> {
    let mut reader = PcmReader::new(stream)?;
    let rate = reader.rate();
    assert!((8_000..=96_000).contains(&rate), "{rate} Hz");
    let mut samples = 0;
    while let Some(block) = reader.next_block()? {
        samples += block.len() as u64;
    }
    assert!(samples <= 30 * 60 * u64::from(rate), "{samples} samples at {rate} Hz");
    Ok(samples)
}
