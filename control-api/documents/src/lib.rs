//! Text of documents (pdf, docx, html, json, csv and plain text) and sound of audio files (WAV, MP3
//! and Ogg).
//!
//! [`extract_as_child`] is the `main` of a child process that confines itself and reads one
//! document. [`parse_output`] reads the child's output in the server. [`decode_as_child`] and
//! [`PcmReader`] are the same for sound. This is a package of its own, because its libraries are
//! large and only the children use them.

mod audio;
mod extract;
mod sandbox;

use std::io::{Read as _, Write as _};

pub use audio::{AUDIO_LIMITS, AudioError, PcmReader, Refusal, decode_as_child, decode_audio};
pub use extract::extract;
pub use sandbox::Sandbox;

/// Limits of a confined process. The system ends it beyond them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPU time in seconds.
    pub cpu_seconds: u64,
    /// Address space in bytes.
    pub memory_bytes: u64,
}

/// Limits of the process that reads a document.
pub const DOCUMENT_LIMITS: Limits = Limits { cpu_seconds: 30, memory_bytes: 1 << 30 };
/// Precedes the text: libraries may have printed something before it.
const TEXT_MARKER: &[u8] = b"\0visavis-text\0";
/// Precedes the reason of a failure.
const ERROR_MARKER: &[u8] = b"\0visavis-why\0";

/// Confines this process permanently. It must have a single thread. Limits memory and CPU time;
/// grants no new privileges; forbids files, sockets and processes, as far as the kernel supports
/// it. Returns what took effect.
///
/// # Errors
/// The limits cannot be set.
pub fn confine(limits: Limits) -> std::io::Result<Sandbox> {
    let Limits { cpu_seconds, memory_bytes } = limits;
    rlimit::setrlimit(rlimit::Resource::AS, memory_bytes, memory_bytes)?;
    rlimit::setrlimit(rlimit::Resource::CPU, cpu_seconds, cpu_seconds)?;
    // The process opens nothing, writes no file and starts no process.
    rlimit::setrlimit(rlimit::Resource::FSIZE, 0, 0)?;
    rlimit::setrlimit(rlimit::Resource::CORE, 0, 0)?;
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    Ok(Sandbox::enter())
}

/// Reads a document of type `kind` from standard input and writes its text to standard output,
/// confined by [`confine`].
///
/// # Errors
/// The limits cannot be set, or a pipe fails. An error in the document is part of the output.
pub fn extract_as_child(kind: &str) -> std::io::Result<()> {
    confine(DOCUMENT_LIMITS)?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    let (mark, text) = match extract(kind, &bytes) {
        Ok(text) => (TEXT_MARKER, text),
        Err(reason) => (ERROR_MARKER, reason),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(mark)?;
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The output of a child: the text, or the error in the document. `None` if the child ended before
/// it wrote either.
#[must_use]
pub fn parse_output(output: &[u8]) -> Option<Result<String, String>> {
    let after_marker = |mark: &[u8]| {
        let at = output.windows(mark.len()).position(|window| window == mark)?;
        Some(String::from_utf8_lossy(&output[at + mark.len()..]).into_owned())
    };
    after_marker(TEXT_MARKER).map(Ok).or_else(|| after_marker(ERROR_MARKER).map(Err))
}
