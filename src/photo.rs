//! `visavis photo`: the server's child process that checks an uploaded photo, or decodes the picture
//! of a background.
//!
//! Standard input is one task in JSON, standard output its response
//! ([`models::face::photo_upload`]). The networks are loaded first. Then the process can open
//! nothing more, because the photo may take it over.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use models::face::photo_upload::{self, Networks, Segmenter, Task};

use crate::{CommandError, child_process};

/// A check takes .3 s; the largest photo has 40 megapixels and needs 500 MB. The server ends a check
/// after 10 s.
const LIMITS: documents::Limits = documents::Limits { cpu_seconds: 10, memory_bytes: 2 << 30 };

pub(crate) fn run(models: &Path) -> Result<ExitCode, CommandError> {
    child_process::run_as_preview()?;
    let folder = models::paths::mediapipe(models);
    let (networks, segmenter) = (Networks::load(&folder), Segmenter::load(&folder));
    photo_upload::draw_with_one_thread();
    documents::confine(LIMITS)?;
    let mut request = Vec::new();
    std::io::stdin().lock().read_to_end(&mut request)?;
    let task: Task = serde_json::from_slice(&request)?;
    let networks = networks.as_ref().map_err(String::as_str);
    let response = photo_upload::respond(&task, networks, segmenter.as_ref().ok());
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &response)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
