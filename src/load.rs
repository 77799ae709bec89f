//! `visavis load`: runs the load generator. It is a separate program, so that the server does not
//! contain a second WebRTC stack.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::{CommandError, load_environment_config};

const LOAD_GENERATOR: &str = "visavis-load";

/// Replaces this process by `visavis-load`, with the same arguments. The program is in the folder of
/// this one.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    let current_exe = std::env::current_exe().context("cannot find the path of this program")?;
    let program = current_exe.with_file_name(LOAD_GENERATOR);
    if !program.is_file() {
        let folder = current_exe.parent().unwrap_or(&current_exe).display();
        let missing = format!("{LOAD_GENERATOR} is not in {folder}: run `make load` in a checkout");
        return Err(CommandError::Usage(missing));
    }
    let models = load_environment_config()?.models.folder();
    // Returns only on failure.
    let error = Command::new(&program).args(arguments).env("VISAVIS_MODELS_DIR", models).exec();
    Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())).into())
}
