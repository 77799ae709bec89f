use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;

use bytes::Bytes;
use recording::Track;
use recording::capture::CaptureReader;

use super::*;

/// Time for the recorder's thread to do something.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A recorder in a folder of its own.
struct Harness {
    recorder: Option<Recorder>,
    folder: PathBuf,
    complete: mpsc::Receiver<ConversationId>,
}

impl Harness {
    fn new(min_free: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("visavis-recorder-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        let (sender, complete) = mpsc::channel();
        let on_complete = Arc::new(move |id| {
            let _ = sender.send(id);
        });
        let config = RecorderConfig { folder: folder.clone(), min_free, on_complete };
        let recorder = start_with_interval(config, Duration::from_millis(1)).unwrap();
        Self { recorder: Some(recorder), folder, complete }
    }

    fn send(&self, message: RecorderMessage) {
        assert!(self.recorder.as_ref().unwrap().sender.send(message).is_ok());
    }

    fn begin(&self, id: ConversationId) -> Arc<RecordingState> {
        let state = Arc::<RecordingState>::default();
        self.send(RecorderMessage::Start { id, video: None, state: Arc::clone(&state) });
        state
    }

    fn push(&self, id: ConversationId, first: u64) {
        let packet = |n: u64| Packet {
            at: Duration::from_millis(n * 20),
            track: Track::Agent,
            data: Bytes::from(vec![n as u8; 50]),
        };
        self.send(RecorderMessage::Packets(id, (first..first + 10).map(packet).collect()));
    }

    fn packets(&self, id: ConversationId) -> usize {
        let file = File::open(recorded_path(&self.folder, id)).unwrap();
        let mut reader = CaptureReader::new(file).unwrap();
        std::iter::from_fn(|| reader.next_packet().unwrap()).count()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.recorder = None;
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let limit = crate::clock::now() + TIMEOUT;
    while !done() {
        assert!(crate::clock::now() < limit, "no {what} within {TIMEOUT:?}");
        std::thread::yield_now();
    }
}

fn id(n: u8) -> ConversationId {
    format!("01890000-0000-7000-8000-0000000000{n:02x}").parse().unwrap()
}

#[test]
fn packets_become_a_file_that_only_its_owner_may_read() {
    let harness = Harness::new(1);
    let state = harness.begin(id(1));
    (0..5).for_each(|n| harness.push(id(1), n * 10));
    harness.send(RecorderMessage::End(id(1)));
    assert_eq!(harness.complete.recv_timeout(TIMEOUT), Ok(id(1)));
    assert_eq!(harness.packets(id(1)), 50);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&recorded_path(&harness.folder, id(1))), 0o600);
    assert_eq!(mode(&harness.folder), 0o700);
    assert_eq!(state.failure(), None);
    assert!(!capture_path(&harness.folder, id(1)).exists());
    let stats = &harness.recorder.as_ref().unwrap().stats;
    assert_eq!(stats.dropped_packets.load(Relaxed), 0);
    wait_for("CPU time", || stats.cost.disk.load(Relaxed) > 0);
}

#[test]
fn a_killed_process_leaves_all_packets_but_the_last() {
    let harness = Harness::new(0);
    let _state = harness.begin(id(2));
    harness.push(id(2), 0);
    let capture = capture_path(&harness.folder, id(2));
    let is_written = || {
        let reader = File::open(&capture).ok().and_then(|file| CaptureReader::new(file).ok());
        reader.is_some_and(|mut reader| reader.next_packet().unwrap().is_some())
    };
    wait_for("packet in the file", is_written);
    // As the file is found after the process was killed.
    let copy = Harness::new(0);
    fs::copy(&capture, capture_path(&copy.folder, id(2))).unwrap();
    fs::write(copy.folder.join("other.txt"), "x").unwrap();
    assert_eq!(complete_old_captures(&copy.folder).unwrap(), [id(2)]);
    assert_eq!(copy.packets(id(2)), 10);
    assert_eq!(
        complete_old_captures(&copy.folder).unwrap(),
        [id(2)],
        "found until it is delivered"
    );
    assert!(complete_old_captures(&copy.folder.join("missing")).unwrap().is_empty());
}

#[test]
fn a_call_whose_end_was_lost_is_complete() {
    let harness = Harness::new(0);
    let state = harness.begin(id(3));
    harness.push(id(3), 0);
    drop(state);
    assert_eq!(harness.complete.recv_timeout(TIMEOUT), Ok(id(3)));
    assert_eq!(harness.packets(id(3)), 10);
}

#[test]
fn a_discarded_recording_leaves_nothing() {
    let harness = Harness::new(0);
    let _state = harness.begin(id(4));
    harness.push(id(4), 0);
    harness.send(RecorderMessage::Discard(id(4)));
    harness.push(id(4), 10);
    let _other = harness.begin(id(5));
    harness.send(RecorderMessage::End(id(5)));
    assert_eq!(harness.complete.recv_timeout(TIMEOUT), Ok(id(5)));
    assert!(!capture_path(&harness.folder, id(4)).exists());
    assert!(!recorded_path(&harness.folder, id(4)).exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_says_so() {
    let almost_full = Harness::new(u64::MAX);
    let state = almost_full.begin(id(6));
    wait_for("failure", || state.failure().is_some());
    assert_eq!(state.failure(), Some("the disk is almost full"));
    assert!(state.is_refused(), "nothing is stored");
    let reason = unavailable_reason(almost_full.recorder.as_ref());
    assert_eq!(reason.unwrap(), "This server cannot record calls now: the disk is almost full.");
    let stats = &almost_full.recorder.as_ref().unwrap().stats;
    assert_eq!(stats.failed.load(Relaxed), 1);
    almost_full.push(id(6), 0);
    wait_for("dropped packet", || stats.dropped_packets.load(Relaxed) == 10);

    let full = Harness::new(0);
    std::os::unix::fs::symlink("/dev/full", capture_path(&full.folder, id(7))).unwrap();
    let state = full.begin(id(7));
    wait_for("failure", || state.failure().is_some());
    assert_eq!(state.failure(), Some("the disk is full"));
    assert_eq!(unavailable_reason(full.recorder.as_ref()), None, "its folder is usable");
}

#[test]
fn a_folder_that_is_removed_is_reported_and_created_again() {
    let harness = Harness::new(0);
    let state = harness.begin(id(8));
    harness.push(id(8), 0);
    wait_for("file", || capture_path(&harness.folder, id(8)).exists());
    fs::remove_dir_all(&harness.folder).unwrap();
    harness.send(RecorderMessage::End(id(8)));
    assert_eq!(harness.complete.recv_timeout(TIMEOUT), Ok(id(8)), "the loss is reported");
    assert_eq!(state.failure(), Some("the folder or the file of the recording is missing"));
    let _next = harness.begin(id(9));
    harness.push(id(9), 0);
    harness.send(RecorderMessage::End(id(9)));
    assert_eq!(harness.complete.recv_timeout(TIMEOUT), Ok(id(9)));
    assert_eq!(harness.packets(id(9)), 10);

    // With a limit, the free space cannot be read any more.
    let limited = Harness::new(1);
    let state = limited.begin(id(10));
    wait_for("file", || capture_path(&limited.folder, id(10)).exists());
    fs::remove_dir_all(&limited.folder).unwrap();
    wait_for("failure", || state.failure().is_some());
    assert_eq!(state.failure(), Some("the folder or the file of the recording is missing"));
}
