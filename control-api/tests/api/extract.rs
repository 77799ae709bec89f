//! The child process that reads a document, as `visavis extract` is in the shipped program; and one that tries to get out.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

fn main() -> std::io::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    match kind.strip_prefix("escape:") {
        Some(file) => escape(Path::new(file)),
        None => documents::extract_as_child(&kind),
    }
}

/// Tries what a document could that has taken the process over, and says line by line how each try ended.
fn escape(file: &Path) -> std::io::Result<()> {
    documents::confine()?;
    let beside = file.with_extension("new");
    let tries = [
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
    for (name, ended) in tries {
        match ended {
            Ok(()) => writeln!(out, "{name}: done")?,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => writeln!(out, "{name}: refused")?,
            Err(error) => writeln!(out, "{name}: {error}")?,
        }
    }
    Ok(())
}
