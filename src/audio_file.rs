//! The sound of audio files, which a confined child process decodes.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use documents::{AudioError, PcmReader};
use studio::{AudioSource, Error, Pcm, SpeechSource};

/// The speech of an audio file.
///
/// # Errors
/// The file cannot be used, or no process can be started.
pub(crate) fn open(file: &Path) -> Result<Box<dyn SpeechSource>, Error> {
    Ok(Box::new(AudioSource::new(decode(file)?)?))
}

fn decode(file: &Path) -> Result<DecodedFile, Error> {
    let file = File::open(file).map_err(|error| failed(&error))?;
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    // It ends with this process, because then nobody reads its output.
    let mut child = Command::new(program)
        .arg("decode-audio")
        .env_clear()
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let output = child.stdout.take().ok_or_else(|| Error::Failed("no pipe".into()))?;
    let child = Decoder(child);
    let pcm = PcmReader::new(BufReader::new(output)).map_err(refused)?;
    Ok(DecodedFile { pcm, _child: child })
}

/// Whether an audio file can be decoded to its end.
///
/// # Errors
/// See [`open`].
pub(crate) fn check(file: &Path) -> Result<(), Error> {
    let mut decoded = decode(file)?;
    while decoded.next_block()?.is_some() {}
    Ok(())
}

fn failed(error: &std::io::Error) -> Error {
    Error::Failed(format!("the audio cannot be decoded: {error}"))
}

fn refused(error: AudioError) -> Error {
    match error {
        AudioError::Refused(refusal) => Error::Input(refusal.to_string()),
        AudioError::Read(_) => Error::Failed(error.to_string()),
    }
}

/// The process. It is waited for, so that its CPU time counts.
struct Decoder(Child);

impl Drop for Decoder {
    fn drop(&mut self) {
        // It has ended, unless its sound is not needed any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct DecodedFile {
    pcm: PcmReader<BufReader<ChildStdout>>,
    _child: Decoder,
}

impl Pcm for DecodedFile {
    fn rate(&self) -> u32 {
        self.pcm.rate()
    }

    fn next_block(&mut self) -> Result<Option<Vec<i16>>, Error> {
        let block = self.pcm.next_block().map_err(refused)?;
        Ok(block.map(<[i16]>::to_vec))
    }

    fn is_incomplete(&self) -> bool {
        self.pcm.is_incomplete()
    }
}
