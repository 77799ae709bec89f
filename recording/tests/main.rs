//! Writes the file of a call: `visavis-recorded-call SECONDS FILE`. Prints its clusters as JSON: the
//! size of the file and the number of packets up to the end of each, and the end in ms.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "the output of a command")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use recording_tests::call;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, file] = &arguments[..] else {
        eprintln!("usage: visavis-recorded-call SECONDS FILE");
        return ExitCode::from(2);
    };
    match write(seconds, Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(seconds: &str, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let call = call::record(Duration::from_secs(seconds.parse()?));
    std::fs::write(file, &call.file)?;
    let clusters: Vec<String> = call
        .clusters
        .iter()
        .map(|c| format!("[{}, {}, {}]", c.bytes, c.packets, c.end.as_millis()))
        .collect();
    println!("{{\"header\": {}, \"clusters\": [{}]}}", call.header, clusters.join(", "));
    Ok(())
}
