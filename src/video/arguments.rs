//! The command line of `visavis video`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

/// How a video has captions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptionStyle {
    /// Not at all.
    #[default]
    None,
    /// In a file beside it.
    Vtt,
    /// As a part of the picture.
    Burned,
}

/// What to write, and where.
#[derive(Args)]
#[command(group = ArgGroup::new("speech").required(true))]
pub(crate) struct VideoArgs {
    /// Name of a built-in avatar, a character file like those in assets/people, or a pose set
    #[arg(long, value_name = "NAME|FILE.toml|FILE.poses")]
    pub(crate) avatar: String,
    /// Text to speak; [warm], [nod], [pause 1.5] and the like direct the avatar
    #[arg(long, value_name = "TEXT", group = "speech")]
    pub(crate) text: Option<String>,
    /// File with the text; `-` for standard input
    #[arg(long, value_name = "F|-", group = "speech")]
    pub(crate) text_file: Option<PathBuf>,
    /// Audio file to speak: WAV, MP3 or Ogg
    #[arg(long, value_name = "F", group = "speech")]
    pub(crate) audio_file: Option<PathBuf>,
    /// Video file to write
    #[arg(long, value_name = "F.webm|F.mp4")]
    pub(crate) out: PathBuf,
    /// Built-in voice [default: that of the avatar]
    #[arg(long, value_name = "NAME")]
    pub(crate) voice: Option<String>,
    /// Video size: 512 (square), 360p, 720p, portrait (720x1280), or WIDTHxHEIGHT [default: 512]
    #[arg(long)]
    pub(crate) size: Option<String>,
    /// Pictures per second, 10 to 30
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub(crate) frame_rate: u32,
    /// Colour behind the avatar, such as '#c0906f'
    #[arg(long, value_name = "#RRGGBB")]
    pub(crate) background: Option<String>,
    /// Captions: none, vtt (a file beside the video), or burned (a part of the picture)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) captions: CaptionStyle,
    /// Models folder [default: as of the server]
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Cache folder for pose sets in other sizes [default: visavis/faces in the user's cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Report progress and the result on standard output as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}
