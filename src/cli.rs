//! The command line. The interface specification fixes its commands, options and exit statuses.

mod help;
mod usage;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::usage::usage_message;
use crate::documentation::Shell;
use crate::listen::ListenAddress;

/// The version, with the commit and its date if they are known.
const VERSION: &str = env!("VISAVIS_VERSION");
/// The same with the machine that the program is built for.
const LONG_VERSION: &str = concat!(env!("VISAVIS_VERSION"), "\ntarget: ", env!("VISAVIS_TARGET"));

/// A self-hosted server for live conversations with video agents
#[derive(Parser)]
#[command(
    name = "visavis",
    version = VERSION,
    long_version = LONG_VERSION,
    arg_required_else_help = true,
    after_help = help::PROGRAM
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server: web pages, REST API and calls
    #[command(after_help = help::SERVE)]
    Serve(ServeArgs),
    /// Serve LiveKit rooms of a fleet without pages and API: only /healthz, /readyz and /metrics
    #[command(after_help = help::WORKER)]
    Worker(ServeArgs),
    /// Create, list and revoke API keys; works while the server is running
    #[command(arg_required_else_help = false, after_help = help::KEYS)]
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Check every provider, model and device, and report what is ready and what to install, and
    /// which settings are in force
    #[command(after_help = help::CHECK)]
    Check {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Send one real request to each configured provider, and print its latency or its error;
        /// the requests cost money
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        place: ConfigPaths,
    },
    /// Ask a running server whether it accepts calls
    #[command(after_help = help::HEALTH)]
    Health {
        /// Address of the server [default: server.listen, on this machine]
        url: Option<String>,
        /// Ask only whether the server runs (/healthz, not /readyz)
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        place: ConfigPaths,
    },
    /// Write a copy of the data folder to a new folder; works while the server is running
    Backup(BackupArgs),
    /// Put a copy that `backup` has written into an empty data folder
    Restore(RestoreArgs),
    /// Extract the text of a document of type KIND from standard input, with resource limits (child
    /// process of the server)
    #[command(hide = true)]
    Extract {
        /// Document type: pdf, docx, html, json or csv
        kind: String,
    },
    /// Decode an audio file (WAV, MP3, Ogg Vorbis, Ogg Opus) from standard input, with resource
    /// limits (child process of the program)
    #[command(hide = true)]
    DecodeAudio,
    /// Render an avatar in every pose and encode the frames as a pose set; without a name, all
    /// built-in avatars
    #[command(after_help = help::BAKE)]
    Bake {
        /// Name of a built-in avatar, or a character file like those in assets/people; `-` for a
        /// photo that is read from standard input
        #[arg(value_name = "NAME|FILE.toml|-")]
        person: Option<String>,
        /// Video size: 512 (square), 360p, 720p, portrait (720x1280), or WIDTHxHEIGHT
        #[arg(long, default_value = "512")]
        size: String,
        /// What the video shows: close (the head) or bust (head and chest)
        #[arg(long, default_value = "close")]
        framing: String,
        /// Output file or folder [default: the current folder]
        #[arg(long, value_name = "F")]
        out: Option<PathBuf>,
        /// Cache folder for finished pose sets and parts of interrupted ones [default:
        /// visavis/faces in the user's cache]
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// File for partial pose sets: each can be shown while rendering continues, and is replaced
        /// by a more complete one
        #[arg(long, value_name = "F")]
        first: Option<PathBuf>,
        /// Report progress on standard output as JSON lines: {"progress": 0.25}, and {"first":
        /// 0.25} for each set written to --first
        #[arg(long)]
        json: bool,
        /// Run at the lowest priority and exit when standard input closes (child process of the
        /// server)
        #[arg(long, hide = true)]
        background: bool,
    },
    /// Write a video in which an avatar speaks a text or an audio file; needs no server
    #[command(after_help = help::VIDEO)]
    Video(crate::video::VideoArgs),
    /// Write the video of the task read from standard input, at the lowest priority (child process of
    /// the server)
    #[command(hide = true)]
    RenderVideo,
    /// Check the photo of the request read from standard input, and draw its previews, with resource
    /// limits (child process of the server)
    #[command(hide = true)]
    Photo {
        /// Models folder, with the networks that find a face
        #[arg(long, value_name = "DIR")]
        models: PathBuf,
    },
    /// Render the preview requests read from standard input, at low priority (child process of the
    /// server)
    #[command(hide = true)]
    Draw,
    /// Write the file of a recording from what was recorded during a call, at the lowest priority
    /// (child process of the server)
    #[command(hide = true)]
    DeliverRecording {
        /// File of the call (ID.recorded in the recordings folder of the data folder)
        capture: PathBuf,
        /// WebM file to write
        out: PathBuf,
        /// Whether both voices share a channel
        #[arg(long, value_enum, default_value_t)]
        channels: crate::deliver::RecordingChannels,
    },
    /// Convert a recording or a video with ffmpeg, at the lowest priority (child process of the
    /// server)
    #[command(hide = true)]
    ConvertRecording {
        #[command(flatten)]
        conversion: crate::deliver::Conversion,
        /// Become ffmpeg, and end with this process
        #[arg(long, value_name = "PID")]
        parent: Option<u32>,
    },
    /// Generate load: run many concurrent calls against a server or an in-process engine, and
    /// report latency and cost (runs visavis-load)
    #[command(disable_help_flag = true, after_help = help::LOAD)]
    Load {
        /// Arguments passed to visavis-load
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Run a turn-taking scenario in simulated time and print the events as JSON lines
    #[command(after_help = help::SIMULATE)]
    Simulate {
        /// Scenario file (JSON)
        file: PathBuf,
        /// Include the reason for each decision
        #[arg(long)]
        explain: bool,
    },
    /// Replay a call from its trace, print the events as simulate does, and compare every output
    /// with that of the live call
    #[command(after_help = help::REPLAY)]
    Replay {
        /// Trace file, as written by `record_trace` to the traces folder of the data folder
        trace: PathBuf,
        /// Include the reason for each decision
        #[arg(long)]
        explain: bool,
    },
    /// Print the completions of the command line for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page, in the format of man
    #[command(after_help = help::MAN)]
    Man {
        /// Write the pages of all commands into this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Where configuration and data are.
#[derive(Args, Clone)]
pub(crate) struct ConfigPaths {
    /// Configuration file (see config/example.toml) [env: VISAVIS_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder: the database and the key files [env: VISAVIS_SERVER_DATA]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Arguments of `visavis backup`.
#[derive(Args)]
pub(crate) struct BackupArgs {
    /// Folder to create, outside of the data folder
    pub(crate) folder: PathBuf,
    /// Leave out recordings and videos
    #[arg(long)]
    pub(crate) without_recordings: bool,
    #[command(flatten)]
    pub(crate) place: ConfigPaths,
}

/// Arguments of `visavis restore`.
#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// Folder that `visavis backup` has written
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) place: ConfigPaths,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) paths: ConfigPaths,
    /// Address of the web pages and the API, or a port on 127.0.0.1; `:PORT` listens on all
    /// addresses, and port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<ListenAddress>,
    /// Allow webhooks, tools and models at private addresses
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) allow_private_targets: Option<bool>,
    /// Enable the scripted providers used by tests and load runs
    #[arg(long)]
    pub(crate) allow_scripted: bool,
    /// LiveKit server whose rooms agents join
    #[arg(long, value_name = "URL")]
    pub(crate) livekit: Option<String>,
    /// Name by which LiveKit dispatches agents of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) agent_name: Option<String>,
    /// Format of log lines on standard error
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<crate::log::Format>,
}

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print only the key
    Create {
        /// Workspace that the key gives access to
        #[arg(long, value_name = "NAME")]
        workspace: String,
        /// Permissions: read (GET), operate (read, and run conversations), administer (everything)
        #[arg(long, value_name = "SCOPE", default_value_t = control_api::Scope::Administer)]
        scope: control_api::Scope,
        #[command(flatten)]
        place: ConfigPaths,
    },
    /// List the keys: id, prefix, workspace, creation time, scope, last use, name
    List {
        #[command(flatten)]
        place: ConfigPaths,
    },
    /// Revoke a key
    Revoke {
        /// Id of the key
        id: String,
        #[command(flatten)]
        place: ConfigPaths,
    },
}
