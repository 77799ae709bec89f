//! The sound of audio files.

use std::path::Path;

use studio::{Error, SpeechSource};

/// The speech of an audio file.
///
/// # Errors
/// No decoder is installed.
pub(crate) fn open(_file: &Path) -> Result<Box<dyn SpeechSource>, Error> {
    Err(Error::Input("audio files cannot be read yet".into()))
}
