//! The inputs of a call with their times, as JSON lines, written by a thread of its own.
//!
//! The first line is `{"trace":1,"conversation":id,"unix_micros":µs,"spec":{…}}`, each further one `{"at":µs,"input":{…}}`, and
//! `{"dropped":n}` where the disk was too slow: from there on the file does not replay.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use conversation::call::{Call, ConversationId};
use conversation::input::Input;
use conversation::time::Time;
use crossbeam_channel::Receiver;
use serde_json::json;

use crate::edge::{self, Sender};
use crate::{graph, thread};

/// What the disk thread is given.
pub enum Line {
    /// A call begins.
    Begin {
        /// The call; only its id and turn-taking are written, never a secret.
        call: Arc<Call>,
        /// Wall clock at its beginning.
        unix_micros: u64,
    },
    /// Something happened to it.
    Input(ConversationId, Time, Box<Input>),
    /// Inputs that did not fit.
    Dropped(ConversationId, u64),
    /// The call is over.
    End(ConversationId),
}

/// Starts the disk thread. It ends when the last sender is gone.
///
/// # Errors
/// The folder cannot be made, or no thread started.
pub fn start(folder: PathBuf) -> io::Result<(Sender<Line>, JoinHandle<()>)> {
    fs::create_dir_all(&folder)?;
    let (sender, lines) = edge::open(&graph::TRACE, None);
    let thread = thread::spawn("disk", move || run(&folder, &lines))?;
    Ok((sender, thread))
}

fn run(folder: &std::path::Path, lines: &Receiver<Line>) {
    let mut files: HashMap<ConversationId, BufWriter<File>> = HashMap::new();
    for line in lines {
        let (id, done) = match line {
            Line::Begin { call, unix_micros } => {
                let head = json!({"trace": 1, "conversation": call.id, "unix_micros": unix_micros, "spec": call.spec});
                let path = folder.join(format!("{}.jsonl", call.id));
                let made = File::create(&path).and_then(|file| {
                    let mut file = BufWriter::new(file);
                    writeln!(file, "{head}").map(|()| file)
                });
                match made {
                    Ok(file) => {
                        files.insert(call.id, file);
                    }
                    Err(error) => tracing::warn!(conversation = %call.id, %error, "no trace is written"),
                }
                continue;
            }
            Line::Input(id, at, input) => (id, write(&mut files, id, &json!({"at": at, "input": input}))),
            Line::Dropped(id, n) => (id, write(&mut files, id, &json!({"dropped": n}))),
            Line::End(id) => (id, files.remove(&id).map_or(Ok(()), |mut file| file.flush())),
        };
        if let Err(error) = done {
            tracing::warn!(conversation = %id, %error, "the trace breaks off");
            files.remove(&id);
        }
    }
}

fn write(
    files: &mut HashMap<ConversationId, BufWriter<File>>,
    id: ConversationId,
    line: &serde_json::Value,
) -> io::Result<()> {
    files.get_mut(&id).map_or(Ok(()), |file| writeln!(file, "{line}"))
}

/// One call's trace.
pub struct Trace {
    disk: Sender<Line>,
    id: ConversationId,
    dropped: u64,
}

impl Trace {
    /// A trace of a call that begins now.
    pub fn begin(disk: Sender<Line>, call: &Arc<Call>, unix_micros: u64) -> Self {
        let mut this = Self { disk, id: call.id, dropped: 0 };
        this.send(Line::Begin { call: Arc::clone(call), unix_micros });
        this
    }

    /// Keeps an input.
    pub fn input(&mut self, at: Time, input: &Input) {
        self.send(Line::Input(self.id, at, Box::new(input.clone())));
    }

    fn send(&mut self, line: Line) {
        if self.dropped > 0 && self.disk.send(Line::Dropped(self.id, self.dropped)).is_ok() {
            self.dropped = 0;
        }
        if self.disk.send(line).is_err() {
            self.dropped += 1;
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.send(Line::End(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_can_be_read_back_from_the_file() {
        let folder = tempfile();
        let (disk, thread) = start(folder.clone()).unwrap();
        let id = ConversationId(7);
        let call = Arc::new(crate::tests_support::call(7));
        let mut trace = Trace::begin(disk, &call, 5);
        trace.input(Time::from_micros(9), &Input::Tick);
        drop(trace);
        thread.join().unwrap();
        let text = fs::read_to_string(folder.join(format!("{id}.jsonl"))).unwrap();
        let mut lines = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        assert_eq!(lines.next().unwrap()["unix_micros"], 5);
        let second = lines.next().unwrap();
        assert_eq!(second["at"], 9);
        assert_eq!(serde_json::from_value::<Input>(second["input"].clone()).unwrap(), Input::Tick);
        fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile() -> PathBuf {
        std::env::temp_dir().join(format!(
            "visavis-trace-{}-{}",
            std::process::id(),
            crate::clock::unix_micros()
        ))
    }
}
