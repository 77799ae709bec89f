//! `visavis completions` and `visavis man`: what packages install beside the program. Both are
//! derived from the command line, without its internal commands.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

use crate::CommandError;

/// Name of the program.
const NAME: &str = "visavis";

/// A shell whose completions can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

/// Prints the completions for a shell.
pub(crate) fn print_completions(command: &Command, shell: Shell) -> Result<ExitCode, CommandError> {
    print(&completions(command, shell))
}

/// Prints the page of the program, or writes those of all commands into a folder.
pub(crate) fn print_manual(
    command: &Command,
    folder: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    let Some(folder) = folder else { return print(&page(command)?) };
    let failed = || format!("the pages cannot be written into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(visible(command), folder).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output.
fn print(text: &[u8]) -> Result<ExitCode, CommandError> {
    match io::stdout().write_all(text) {
        // The reader closed the pipe early, for example `head`. That is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The command line without its internal commands.
fn visible(all: &Command) -> Command {
    let mut visible = Command::new(NAME).subcommand_required(true);
    visible = visible.version(env!("VISAVIS_VERSION"));
    visible = visible.about(all.get_about().cloned().unwrap_or_default());
    visible = visible.after_help(all.get_after_help().cloned().unwrap_or_default());
    visible.subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

fn completions(command: &Command, shell: Shell) -> Vec<u8> {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(generator, &mut visible(command), NAME, &mut text);
    text
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(visible(command)).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn completions_and_pages_name_every_command_that_people_use_and_no_internal_one() {
        let command = Cli::command();
        let texts = [
            completions(&command, Shell::Bash),
            completions(&command, Shell::Zsh),
            completions(&command, Shell::Fish),
            page(&command).unwrap(),
        ];
        for text in texts {
            // The format of man escapes hyphens.
            let text = String::from_utf8(text).unwrap().replace("\\-", "-");
            for command in command.get_subcommands() {
                let (name, hidden) = (command.get_name(), command.is_hide_set());
                let is_named = text
                    .split(|c: char| !c.is_alphanumeric() && c != '-')
                    .any(|word| word == name || word == format!("visavis-{name}"));
                // These names are also words of descriptions.
                let is_word = matches!(name, "draw" | "photo" | "extract");
                assert!(is_named != hidden || (hidden && is_word), "{name}: {text}");
            }
        }
    }
}
