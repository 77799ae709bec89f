//! The child process that reads a document, as `visavis extract` is in the shipped program.

fn main() -> std::io::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    documents::extract_as_child(&kind)
}
