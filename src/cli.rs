//! The command line, as `docs` of the contract name it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// A self-hosted server for live conversations with video agents.
#[derive(Parser)]
#[command(name = "visavis", version, disable_help_subcommand = true, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the pages, the REST plane and the calls
    Serve(Serve),
    /// Make, list and revoke API keys, also beside a running server
    #[command(arg_required_else_help = false)]
    Keys {
        #[command(subcommand)]
        command: Keys,
    },
    /// List each provider, model and device: ready, or what to install
    Check {
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Read a document of type KIND from standard input and write its words, within limits: the server's child process
    #[command(hide = true)]
    Extract {
        /// pdf, docx, html, json, csv
        kind: String,
    },
    /// Draw a person in every pose and encode them into a pose set; without a name all people of this project
    Bake {
        /// One of them, or a file like those of assets/people
        #[arg(value_name = "NAME|FILE.toml")]
        person: Option<String>,
        /// Size of the picture: 512 (a square), 360p, 720p, or WIDTHxHEIGHT
        #[arg(long, default_value = "512")]
        size: String,
        /// File or folder to write to, instead of the current folder
        #[arg(long, value_name = "F")]
        out: Option<PathBuf>,
        /// Folder of finished sets and of the parts of stopped ones, instead of visavis/faces in the user's cache
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// File for what is drawn first: a set that can be shown while the rest is drawn, replaced by a larger one as that is there
        #[arg(long, value_name = "F")]
        first: Option<PathBuf>,
        /// Tell how far it is as lines of JSON on standard output: {"progress": 0.25}, and {"first": 0.25} with each set of --first
        #[arg(long)]
        json: bool,
        /// With the lowest priority, and ending when standard input does: the server's child process
        #[arg(long, hide = true)]
        background: bool,
    },
    /// Draw what an editor asks for on standard input, with a low priority: the server's child process
    #[command(hide = true)]
    Draw,
    /// Hold many calls at once, of a server or in an engine of this process, and measure (runs visavis-load)
    #[command(disable_help_flag = true)]
    Load {
        /// Arguments of visavis-load
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Run a scenario of turn-taking in simulated time and print what happens, one JSON object a line
    Simulate {
        /// The scenario, JSON
        file: PathBuf,
        /// Add why each decision was taken
        #[arg(long)]
        explain: bool,
    },
    /// Replay a call from its trace, print what happened as simulate does, and compare every output with the live call's
    Replay {
        /// The trace, as `record_trace` writes it to the folder traces of the data folder
        trace: PathBuf,
        /// Add why each decision was taken
        #[arg(long)]
        explain: bool,
    },
}

/// Where configuration and data are.
#[derive(Args, Clone)]
pub(crate) struct Place {
    /// Configuration file, as config/example.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the database and the key files
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address of pages and API; port 0 = any
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Let webhooks, tools and models be at private addresses
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_private_targets: Option<bool>,
    /// Admit the scripted providers of tests and load runs
    #[arg(long)]
    pub(crate) allow_scripted: bool,
    /// How lines of the log are written, on standard error
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<crate::log::Format>,
}

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Make a key and print it, alone
    Create {
        /// Whose conversations and agents it opens
        #[arg(long, value_name = "NAME")]
        workspace: String,
        /// What it may do: read (GET), operate (also hold conversations), administer (everything)
        #[arg(long, value_name = "SCOPE", default_value_t = control_api::Scope::Administer)]
        scope: control_api::Scope,
        #[command(flatten)]
        place: Place,
    },
    /// List the keys: id, prefix, workspace, when it was made, scope, when it was last used, name
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Revoke a key
    Revoke {
        /// Its id
        id: String,
        #[command(flatten)]
        place: Place,
    },
}

/// What is wrong with a command line, in one sentence that names what is missing.
pub(crate) fn sentence(error: &clap::Error) -> String {
    let listed = |kind| match error.get(kind) {
        // What the help hides is not named here either.
        Some(ContextValue::Strings(all)) => {
            let hidden =
                |name: &String| Cli::command().find_subcommand(name).is_some_and(clap::Command::is_hide_set);
            all.iter().filter(|name| !hidden(name)).map(String::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(ContextValue::String(one)) => one.clone(),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument => format!("missing {}", listed(ContextKind::InvalidArg)),
        ErrorKind::MissingSubcommand => format!(
            "{} needs a command: {}",
            listed(ContextKind::InvalidSubcommand),
            listed(ContextKind::ValidSubcommand)
        ),
        _ => {
            let text = error.to_string();
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("bad usage");
            first.trim_start_matches("error: ").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_command_line_is_told_in_one_sentence() {
        for (line, said) in [
            ("visavis", "visavis needs a command: serve, "),
            ("visavis keys", "visavis keys needs a command: create, list, revoke"),
            ("visavis keys create", "missing --workspace <NAME>"),
            ("visavis keys create --workspace a --scope root", "invalid value 'root' for '--scope <SCOPE>'"),
            ("visavis keys revoke", "missing <ID>"),
            ("visavis simulate", "missing <FILE>"),
            ("visavis serv", "unrecognized subcommand 'serv'"),
            ("visavis serve --lisen 1", "unexpected argument '--lisen' found"),
            ("visavis serve --listen here", "invalid value 'here' for '--listen <ADDR:PORT>'"),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).err().unwrap();
            let told = sentence(&error);
            assert!(told.starts_with(said) && !told.contains('\n'), "{line}: {told}");
        }
    }
}
