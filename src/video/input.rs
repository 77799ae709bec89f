//! The input of a command line.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use conversation::script::{self, Script};
use engine_api::is_out_of_space;
use models::film::{MAX_AUDIO_BYTES, MAX_PAUSE_SECONDS, MAX_TEXT_CHARS, Speech, seed_of};
use models::tts::check_builtin_voice;
use studio::Error;

use super::files::Part;
use super::{Failure, VideoArgs};
use crate::{CommandError, audio_file};

/// The speech of a command line, and what identifies it.
pub(super) fn read_speech(arguments: &VideoArgs) -> Result<(Speech, String), Failure> {
    let read = |file: &Path| -> Result<String, CommandError> {
        let mut text = String::new();
        // One character over the limit is enough to detect the excess.
        let limit = 4 * MAX_TEXT_CHARS as u64 + 4;
        let from: Box<dyn io::Read> = match file.to_str() {
            Some("-") => Box::new(io::stdin()),
            _ => Box::new(File::open(file).map_err(|error| unreadable(file, error))?),
        };
        from.take(limit).read_to_string(&mut text).map_err(|error| unreadable(file, error))?;
        Ok(text)
    };
    let text = match (&arguments.text, &arguments.text_file, &arguments.audio_file) {
        (_, _, Some(file)) => {
            let metadata = fs::metadata(file).map_err(|error| unreadable(file, error))?;
            // It is read twice, which a pipe cannot be.
            if !metadata.is_file() {
                return Err(unreadable(file, "the audio is not in a file").into());
            }
            if metadata.len() > MAX_AUDIO_BYTES as u64 {
                return Err(unreadable(file, "the audio is larger than 50 MB").into());
            }
            let content = fs::read(file).map_err(|error| unreadable(file, error))?;
            return Ok((Speech::Audio { file: file.clone() }, seed_of(&content).to_string()));
        }
        (_, Some(file), _) => read(file)?,
        (text, ..) => text.clone().unwrap_or_default(),
    };
    let voice = arguments.voice.clone().unwrap_or_default();
    if !voice.is_empty() {
        check_builtin_voice(&voice)
            .map_err(|why| CommandError::Usage(format!("--voice {voice}: {why}")))?;
    }
    let speech = Speech::Voice {
        text: text.clone(),
        provider: String::new(),
        voice,
        language: None,
        pronunciation: Vec::new(),
    };
    Ok((speech, text))
}

pub(super) fn unreadable(file: &Path, why: impl Display) -> CommandError {
    CommandError::Usage(format!("{}: {why}", file.display()))
}

/// Whether a text can be spoken, or an audio file decoded.
pub(super) fn check_speech(speech: &Speech) -> Result<(), Error> {
    match speech {
        Speech::Voice { text, .. } | Speech::Spool { text, .. } => parse_script(text).map(drop),
        Speech::Audio { file } => audio_file::check(file),
    }
}

/// Whether a file can be written under the name that an option gives it.
pub(super) fn check_out(option: &str, out: &Path) -> Result<(), Failure> {
    let refused =
        |why: &dyn Display| CommandError::Usage(format!("{option} {}: {why}", out.display()));
    if out.is_dir() {
        return Err(refused(&"is a folder").into());
    }
    match Part::create(out) {
        Ok(_) => Ok(()),
        Err(error) if is_out_of_space(&error) => Err(Error::Write(error).into()),
        Err(error) => Err(refused(&error).into()),
    }
}

/// A text that can be spoken.
pub(super) fn parse_script(text: &str) -> Result<Script, Error> {
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(Error::Input("the text is longer than 20,000 characters".into()));
    }
    let script = script::parse(text);
    if script.pauses > Duration::from_secs(MAX_PAUSE_SECONDS.into()) {
        return Err(Error::Input("the text pauses for longer than 600 s in total".into()));
    }
    if script.segments.is_empty() {
        return Err(Error::Input("the text contains nothing to speak".into()));
    }
    Ok(script)
}
