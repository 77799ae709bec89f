//! `visavis photo`: the server's child process that checks an uploaded photo.
//!
//! Standard input is one request in JSON, standard output its response
//! ([`models::face::photo_upload`]). The networks are loaded first. Then the process can open
//! nothing more, because the photo may take it over.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use models::face::photo_upload::{self, Networks, Request};

use crate::{CommandError, child_process};

/// A check takes .3 s, and 60 megapixels need 700 MB. The server ends a check after 10 s.
const LIMITS: documents::Limits = documents::Limits { cpu_seconds: 10, memory_bytes: 2 << 30 };

pub(crate) fn run(models: &Path) -> Result<ExitCode, CommandError> {
    child_process::lower_priority(child_process::PREVIEW_NICENESS)?;
    let networks = Networks::load(&models::paths::mediapipe(models));
    photo_upload::draw_with_one_thread();
    documents::confine(LIMITS)?;
    let mut request = Vec::new();
    std::io::stdin().lock().read_to_end(&mut request)?;
    let request: Request = serde_json::from_slice(&request)?;
    let response = photo_upload::respond(&request, networks.as_ref().map_err(String::as_str));
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &response)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
