//! `visavis load`: runs the load generator. It is a separate program, so that the server does not
//! contain a second WebRTC stack.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::cli::ConfigPaths;
use crate::{CommandError, load_config};

const LOAD_GENERATOR: &str = "visavis-load";

/// Replaces this process by `visavis-load`, with the same arguments. The program is searched next
/// to this one, then on the `PATH`.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    let current_exe = std::env::current_exe().context("cannot find the path of this program")?;
    let program = find_load_generator(&current_exe);
    let models = load_config(&ConfigPaths { config: None, data: None })?.models.dir;
    // Returns only on failure.
    let error = Command::new(&program).args(arguments).env("VISAVIS_MODELS_DIR", models).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let missing = format!(
            "{LOAD_GENERATOR} is neither next to {} nor on the PATH: build it with make build-load",
            current_exe.display()
        );
        return Err(CommandError::Failed(anyhow::Error::msg(missing)));
    }
    Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())).into())
}

/// The path of the load generator next to a program, or its bare name if there is none.
fn find_load_generator(current_exe: &Path) -> PathBuf {
    Some(current_exe.with_file_name(LOAD_GENERATOR))
        .filter(|program| program.exists())
        .unwrap_or_else(|| LOAD_GENERATOR.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_beside_this_one_is_preferred() {
        let folder = std::env::temp_dir().join(format!("visavis-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(find_load_generator(&folder.join("visavis")), Path::new(LOAD_GENERATOR));
        std::fs::write(folder.join(LOAD_GENERATOR), "").unwrap();
        assert_eq!(find_load_generator(&folder.join("visavis")), folder.join(LOAD_GENERATOR));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
