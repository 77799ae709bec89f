//! Traces of calls, written by a thread of their own. [`conversation::trace`] defines their format.
//!
//! Each file is flushed once a second, so that a killed server loses at most about one second of
//! it. It is closed when its call ends.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use conversation::id::ConversationId;
use conversation::input::Input;
use conversation::output::Output;
use conversation::time::Time;
use conversation::trace;
use crossbeam_channel::{Receiver, select, tick};
use engine_api::CallConfig;
use models::panic_isolation::restart_forever;
use tokio::sync::oneshot;

use crate::channel::{self, Sender};
use crate::thread;

/// Interval between two flushes to the disk.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Messages to the disk thread.
pub enum TraceMessage {
    /// A call starts.
    Start {
        /// Configuration of the call; only its id and turn-taking settings are written, never a
        /// secret.
        config: Arc<CallConfig>,
        /// Wall clock at the start of the call, in µs since the Unix epoch.
        unix_micros: u64,
        /// Upgradable while the call runs; its `End` message may be lost when the channel is full.
        alive: Weak<()>,
    },
    /// One step of a call: its input and the resulting outputs.
    Step(ConversationId, Time, Box<(Input, Vec<Output>)>),
    /// Number of steps that did not fit into the channel.
    Dropped(ConversationId, u64),
    /// The call has ended.
    End(ConversationId),
    /// Request for a reply once all preceding messages are in the files.
    Flush(oneshot::Sender<()>),
}

/// Starts the disk thread. It ends when the last sender is dropped.
///
/// # Errors
/// The folder cannot be created, or no thread can be started.
pub fn start(folder: PathBuf) -> io::Result<(Sender<TraceMessage>, JoinHandle<()>)> {
    start_with_interval(folder, FLUSH_INTERVAL)
}

fn start_with_interval(
    folder: PathBuf,
    flush: Duration,
) -> io::Result<(Sender<TraceMessage>, JoinHandle<()>)> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // Traces contain what users said, so only the owner may read the folder. The folder of another
    // owner keeps its mode.
    if let Err(error) = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)) {
        tracing::warn!(
            folder = %folder.display(),
            %error,
            "cannot restrict the permissions of the traces folder to its owner"
        );
    }
    let (sender, lines) = channel::open(&channel::TRACE, None);
    let thread =
        thread::spawn("disk", move || restart_forever(|| write_traces(&folder, &lines, flush)))?;
    Ok((sender, thread))
}

fn write_traces(folder: &Path, lines: &Receiver<TraceMessage>, flush: Duration) {
    let mut files = TraceFiles { folder, open_traces: HashMap::new() };
    let flush = tick(flush);
    loop {
        if files.open_traces.is_empty() {
            let Ok(line) = lines.recv() else { return };
            files.handle(line);
            continue;
        }
        select! {
            recv(lines) -> line => match line {
                Ok(line) => files.handle(line),
                Err(_) => break,
            },
            recv(flush) -> _ => {
                let finished: Vec<_> = files
                    .open_traces
                    .iter()
                    .filter(|(_, f)| f.alive.strong_count() == 0)
                    .map(|(id, _)| *id)
                    .collect();
                // Messages sent before the call ended have arrived by now.
                lines.try_iter().for_each(|line| files.handle(line));
                finished.into_iter().for_each(|id| files.close(id));
                files.flush();
            }
        }
    }
    files.flush();
}

/// Waits until all sent messages are in the files, for at most one second: a disk may be broken.
pub async fn flush(disk: &Sender<TraceMessage>) {
    flush_within(disk, FLUSH_INTERVAL).await;
}

async fn flush_within(disk: &Sender<TraceMessage>, timeout: Duration) {
    let (done, written) = oneshot::channel();
    if disk.send(TraceMessage::Flush(done)).is_ok() {
        // The timeout ends the wait, too.
        let _ = tokio::time::timeout(timeout, written).await;
    }
}

/// A trace that is being written.
struct OpenTrace {
    file: BufWriter<File>,
    alive: Weak<()>,
}

struct TraceFiles<'a> {
    folder: &'a Path,
    open_traces: HashMap<ConversationId, OpenTrace>,
}

impl TraceFiles<'_> {
    fn handle(&mut self, line: TraceMessage) {
        match line {
            TraceMessage::Start { config: call, unix_micros, alive: lives } => {
                match self.create(&call, unix_micros) {
                    Ok(file) => {
                        self.open_traces.insert(call.id, OpenTrace { file, alive: lives });
                    }
                    Err(error) => {
                        tracing::warn!(
                            conversation = %call.id,
                            %error,
                            "cannot create a trace file: the call has no trace"
                        )
                    }
                }
            }
            TraceMessage::Step(id, at, step) => {
                let (input, out) = *step;
                let line = trace::step_line(at, &input, &out);
                if line.len() <= trace::MAX_LINE_BYTES {
                    self.write(id, &line);
                } else {
                    self.write(id, &trace::dropped_line(1));
                }
            }
            TraceMessage::Dropped(id, n) => self.write(id, &trace::dropped_line(n)),
            TraceMessage::End(id) => self.close(id),
            TraceMessage::Flush(waits) => {
                self.flush();
                // The requester may have stopped waiting.
                let _ = waits.send(());
            }
        }
    }

    /// Creates the file; only the owner may read what was said.
    fn create(&self, call: &CallConfig, unix_micros: u64) -> io::Result<BufWriter<File>> {
        let path = self.folder.join(trace::file_name(call.id));
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut file = BufWriter::new(file);
        file.write_all(trace::header_line(call.id, unix_micros, &call.spec).as_bytes())?;
        Ok(file)
    }

    fn write(&mut self, id: ConversationId, line: &str) {
        let written =
            self.open_traces.get_mut(&id).map_or(Ok(()), |w| w.file.write_all(line.as_bytes()));
        self.close_on_error(id, written);
    }

    fn close(&mut self, id: ConversationId) {
        let flushed = self.open_traces.remove(&id).map_or(Ok(()), |mut w| w.file.flush());
        self.close_on_error(id, flushed);
    }

    fn flush(&mut self) {
        let ids: Vec<_> = self.open_traces.keys().copied().collect();
        for id in ids {
            let flushed = self.open_traces.get_mut(&id).map_or(Ok(()), |w| w.file.flush());
            self.close_on_error(id, flushed);
        }
    }

    /// Abandons a trace that can no longer be written.
    fn close_on_error(&mut self, id: ConversationId, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!(
                conversation = %id,
                %error,
                "cannot write to a trace file: the trace is incomplete"
            );
            if let Some(writing) = self.open_traces.remove(&id) {
                // Dropping the writer would flush its buffer and fail again.
                drop(writing.file.into_parts());
            }
        }
    }
}

/// The trace of one call.
pub struct TraceWriter {
    sender: Sender<TraceMessage>,
    id: ConversationId,
    /// The start message until the channel has accepted it; without it there is no file.
    pending_start: Option<TraceMessage>,
    dropped_steps: u64,
    _alive: Arc<()>,
}

impl TraceWriter {
    /// A trace of a call that starts now.
    pub fn new(disk: Sender<TraceMessage>, call: &Arc<CallConfig>, unix_micros: u64) -> Self {
        let alive = Arc::new(());
        let begin = TraceMessage::Start {
            config: Arc::clone(call),
            unix_micros,
            alive: Arc::downgrade(&alive),
        };
        let mut this = Self {
            sender: disk,
            id: call.id,
            pending_start: Some(begin),
            dropped_steps: 0,
            _alive: alive,
        };
        this.send_pending();
        this
    }

    /// Records an input and the resulting outputs.
    pub fn record_step(&mut self, at: Time, input: Input, out: Vec<Output>) {
        self.send_pending();
        if self.pending_start.is_some()
            || self.sender.send(TraceMessage::Step(self.id, at, Box::new((input, out)))).is_err()
        {
            self.dropped_steps += 1;
        }
    }

    /// Sends what did not fit into the channel before.
    fn send_pending(&mut self) {
        if let Some(begin) = self.pending_start.take() {
            self.pending_start = self.sender.send(begin).err();
        }
        let waits = self.pending_start.is_none() && self.dropped_steps > 0;
        if waits && self.sender.send(TraceMessage::Dropped(self.id, self.dropped_steps)).is_ok() {
            self.dropped_steps = 0;
        }
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        self.send_pending();
        // If the channel is full, the disk thread detects the end of the call by itself.
        drop(self.sender.send(TraceMessage::End(self.id)));
    }
}

#[cfg(test)]
mod tests {
    use conversation::replay::{Replay, Verdict};

    use super::*;

    /// Result of a replay of the text.
    fn replay_verdict(text: &str) -> Verdict {
        let mut replay = Replay::new(false);
        for line in text.lines() {
            replay.read_line(line.as_bytes()).unwrap();
        }
        replay.finish().unwrap().1
    }

    /// Runs a call with one tick per second, as its `Call` would.
    fn run_call(trace: &mut TraceWriter, call: &CallConfig, ticks: u64) {
        let mut conversation = conversation::conversation::Conversation::new(call.spec.clone());
        for second in 0..ticks {
            let at = Time::from_micros(1_000_000 * second);
            conversation.handle(Input::Tick, at);
            trace.record_step(
                at,
                Input::Tick,
                std::iter::from_fn(|| conversation.poll()).collect(),
            );
        }
    }

    #[test]
    fn a_call_replays_from_the_file_that_only_its_owner_may_read() {
        use std::os::unix::fs::PermissionsExt;

        let folder = temp_folder();
        let (disk, thread) = start(folder.clone()).unwrap();
        let call = Arc::new(crate::test_support::call_config(7));
        let mut trace = TraceWriter::new(disk, &call, 5);
        run_call(&mut trace, &call, 400);
        drop(trace);
        thread.join().unwrap();
        let path = folder.join(trace::file_name(call.id));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("{\"trace\":1,"), "{text:.100}");
        // Three call-outs, and the three outputs at the end.
        assert_eq!(replay_verdict(&text), Verdict::Identical { inputs: 400, outputs: 6 });
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn dropped_trace_lines_are_counted_at_their_position() {
        // No receiver drains this channel: it is full after `capacity` lines.
        let (disk, lines) = channel::open(&channel::TRACE, None);
        let call = Arc::new(crate::test_support::call_config(7));
        let mut trace = TraceWriter::new(disk, &call, 5);
        run_call(&mut trace, &call, channel::TRACE.capacity as u64 + 9);
        let folder = temp_folder();
        fs::create_dir_all(&folder).unwrap();
        let mut files = TraceFiles { folder: &folder, open_traces: HashMap::new() };
        lines.try_iter().for_each(|line| files.handle(line));
        drop(trace);
        lines.try_iter().for_each(|line| files.handle(line));
        assert!(files.open_traces.is_empty(), "its end closes it");
        let text = fs::read_to_string(folder.join(trace::file_name(call.id))).unwrap();
        let line = channel::TRACE.capacity as u64 + 1;
        assert_eq!(replay_verdict(&text), Verdict::Gap { line, missing: 10 });
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_call_whose_end_did_not_fit_is_closed_all_the_same() {
        let folder = temp_folder();
        let (disk, thread) = start_with_interval(folder.clone(), Duration::from_millis(1)).unwrap();
        let alive = Arc::new(());
        let call = Arc::new(crate::test_support::call_config(7));
        let begin = TraceMessage::Start {
            config: Arc::clone(&call),
            unix_micros: 5,
            alive: Arc::downgrade(&alive),
        };
        assert!(disk.send(begin).is_ok());
        drop(alive);
        // The thread receives no other message.
        let path = folder.join(trace::file_name(call.id));
        let flushed = || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'));
        let limit = crate::clock::now() + Duration::from_secs(20);
        while !flushed() {
            assert!(crate::clock::now() < limit, "nothing was written within 20 s");
            std::thread::yield_now();
        }
        drop(disk);
        thread.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn flushing_the_trace_writes_all_sent_lines() {
        let folder = temp_folder();
        let (disk, thread) =
            start_with_interval(folder.clone(), Duration::from_secs(3600)).unwrap();
        let call = Arc::new(crate::test_support::call_config(7));
        let mut trace = TraceWriter::new(disk.clone(), &call, 5);
        run_call(&mut trace, &call, 3);
        flush_within(&disk, Duration::from_secs(60)).await;
        let text = fs::read_to_string(folder.join(trace::file_name(call.id))).unwrap();
        assert!(matches!(replay_verdict(&text), Verdict::Truncated { line: 4, .. }), "{text}");
        drop((trace, disk));
        thread.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    fn temp_folder() -> PathBuf {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        std::env::temp_dir().join(format!(
            "visavis-trace-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        ))
    }
}
