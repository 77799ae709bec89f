//! The command line, as `docs` of the contract name it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A self-hosted server for live conversations with video agents.
#[derive(Parser)]
#[command(name = "visavis", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the pages, the REST plane and the calls
    Serve(Serve),
    /// Make, list and revoke API keys, also beside a running server
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
    /// Run a scenario of turn-taking in simulated time and print what happens, one JSON object a line
    Simulate {
        /// The scenario, JSON
        file: PathBuf,
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
}

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Make a key and print it, alone
    Create {
        /// Whose conversations and agents it opens
        #[arg(long, value_name = "NAME")]
        workspace: String,
        #[command(flatten)]
        place: Place,
    },
    /// List the keys: id, prefix, workspace, name
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
