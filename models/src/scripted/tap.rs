//! Writes samples to a file. The media thread only hands them over; a thread of the tap writes
//! them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crate::{Error, ErrorKind};

/// File for the samples of one stream: 16 kHz, 16 bits, little endian, without a header. New
/// samples are appended to an existing file.
pub(super) struct Tap(mpsc::Sender<Vec<u8>>);

impl Tap {
    pub(super) fn write(&self, pcm: &[i16]) {
        // Fails only after a write error, which is logged.
        let _ = self.0.send(pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect());
    }
}

/// Opens `NAME.pcm` in `folder`.
///
/// # Errors
/// The name has characters other than letters, digits, `_` and `-`, or the file cannot be opened.
pub(super) fn open(folder: &Path, name: &str) -> Result<Tap, Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Error::new(
            ErrorKind::Failed,
            "the name of a tap has letters, digits, _ and - only",
        ));
    }
    let broken = |error: io::Error| {
        Error::new(ErrorKind::Failed, "the tap cannot be opened").with_source(error)
    };
    fs::create_dir_all(folder).map_err(broken)?;
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(folder.join(name).with_extension("pcm"))
        .map_err(broken)?;
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let write = move || {
        for samples in receiver {
            if let Err(error) = file.write_all(&samples) {
                tracing::warn!(%error, "cannot write to a tap file");
                return;
            }
        }
    };
    thread::Builder::new().name("tap".into()).spawn(write).map_err(broken)?;
    Ok(Tap(sender))
}
