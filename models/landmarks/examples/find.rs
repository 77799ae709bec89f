//! Finds the face of each picture, and prints one line of JSON for it:
//! `find NETWORKS PICTURE…`, where NETWORKS is the folder of the network files.
//!
//! With `--crop FOLDER` before the pictures, the upright crops are written there as PNG files.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use landmarks::{DecodeLimits, Networks, decode, find, level};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from).peekable();
    let networks = arguments.next().ok_or_else(|| "no folder of networks is named".to_owned());
    let networks = match networks.and_then(|folder| Networks::load(&folder)) {
        Ok(networks) => networks,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let crops = arguments.next_if(|argument| argument == Path::new("--crop"));
    let crops = crops.and_then(|_| arguments.next());
    for file in arguments {
        println!("{}", result(&networks, &file, crops.as_deref()));
    }
    ExitCode::SUCCESS
}

/// What was found in a file.
fn result(networks: &Networks, file: &Path, crops: Option<&Path>) -> Value {
    let name = file.display().to_string();
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return json!({"file": name, "error": error.to_string()}),
    };
    let picture = match decode(&bytes, DecodeLimits::default()) {
        Ok(picture) => picture,
        Err(error) => return json!({"file": name, "error": error.to_string()}),
    };
    let found = match find(networks, &picture) {
        Ok(found) => found,
        Err(refusal) => {
            return json!({
                "file": name,
                "error": refusal.to_string(),
                "reason": refusal.reason(),
            });
        }
    };
    if let Some(folder) = crops {
        let (crop, _) = level(&picture, &found.points, [512, 512]);
        let stem = file.file_stem().unwrap_or_default();
        let path = folder.join(stem).with_extension("png");
        let (width, height) = (crop.width() as u32, crop.height() as u32);
        let saved = image::save_buffer(path, crop.rgb(), width, height, image::ColorType::Rgb8);
        if let Err(error) = saved {
            return json!({"file": name, "error": error.to_string()});
        }
    }
    let warnings: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
    json!({
        "file": name,
        "points": found.points.as_slice(),
        "box": found.bounds,
        "angles": found.angles,
        "warnings": warnings,
    })
}
