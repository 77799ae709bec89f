//! The child process that extracts the text of a document or decodes audio, like `visavis extract`
//! and `visavis decode-audio` in the shipped program. A third mode tries to escape from the sandbox.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

fn main() -> std::io::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    match kind.strip_prefix("escape:") {
        Some(file) => try_escape(Path::new(file)),
        None if kind == "decode-audio" => documents::decode_as_child(),
        None => documents::extract_as_child(&kind),
    }
}

/// Tries what a document could try that has taken control of the process. Prints one line for the
/// result of each attempt.
fn try_escape(file: &Path) -> std::io::Result<()> {
    documents::confine(documents::DOCUMENT_LIMITS)?;
    let beside = file.with_extension("new");
    let attempts = [
        ("read", std::fs::read(file).map(drop)),
        ("list", std::fs::read_dir(file.parent().unwrap_or(file)).map(drop)),
        ("make", std::fs::create_dir(beside)),
        ("remove", std::fs::remove_file(file)),
        ("run", Command::new("/bin/true").status().map(drop)),
        ("tcp", std::net::TcpListener::bind("127.0.0.1:0").map(drop)),
        ("udp", std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
        ("unix", std::os::unix::net::UnixDatagram::unbound().map(drop)),
    ];
    let mut out = std::io::stdout().lock();
    for (name, ended) in attempts {
        match ended {
            Ok(()) => writeln!(out, "{name}: done")?,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                writeln!(out, "{name}: refused")?
            }
            Err(error) => writeln!(out, "{name}: {error}")?,
        }
    }
    Ok(())
}
