//! Words of documents: pdf, docx, html, json, csv and text.
//!
//! [`extract_as_child`] is the `main` of a child process that confines itself and reads one document; [`answer`] reads in the
//! server what the child wrote. A package of its own, because its libraries are large and only the child uses them.

mod extract;
mod sandbox;

use std::io::{Read as _, Write as _};

pub use extract::extract;
pub use sandbox::Sandbox;

/// Processor time, in seconds. The system ends the child beyond it.
const CPU_SECONDS: u64 = 30;
/// Address space, in bytes.
const MEMORY: u64 = 1 << 30;
/// Precedes the text: libraries may have printed something before.
const TEXT: &[u8] = b"\0visavis-text\0";
/// Precedes the reason of a failure.
const REASON: &[u8] = b"\0visavis-why\0";

/// Confines this process, which has a single thread, for good: memory, processor time, no new privileges; no files, sockets and
/// processes, as far as the kernel can. What it did is returned.
///
/// # Errors
/// The limits cannot be set.
pub fn confine() -> std::io::Result<Sandbox> {
    rlimit::setrlimit(rlimit::Resource::AS, MEMORY, MEMORY)?;
    rlimit::setrlimit(rlimit::Resource::CPU, CPU_SECONDS, CPU_SECONDS)?;
    // It opens nothing, writes no file and starts no process.
    rlimit::setrlimit(rlimit::Resource::FSIZE, 0, 0)?;
    rlimit::setrlimit(rlimit::Resource::CORE, 0, 0)?;
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    Ok(Sandbox::enter())
}

/// Reads a document of type `kind` from standard input and writes its words to standard output, confined by [`confine`].
///
/// # Errors
/// The limits cannot be set, or a pipe breaks. What is wrong with the document is part of the output.
pub fn extract_as_child(kind: &str) -> std::io::Result<()> {
    confine()?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    let (mark, text) = match extract(kind, &bytes) {
        Ok(text) => (TEXT, text),
        Err(reason) => (REASON, reason),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(mark)?;
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What a child wrote: the words, or what is wrong with the document. None if the child ended before it could say either.
#[must_use]
pub fn answer(output: &[u8]) -> Option<Result<String, String>> {
    let after = |mark: &[u8]| {
        let at = output.windows(mark.len()).position(|window| window == mark)?;
        Some(String::from_utf8_lossy(&output[at + mark.len()..]).into_owned())
    };
    after(TEXT).map(Ok).or_else(|| after(REASON).map(Err))
}
