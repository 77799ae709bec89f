//! A process of the test program that crashes before or after the nth commit of its server.
//!
//! The test program starts itself, as in `crash.rs`. The process runs one test, whose name ends in
//! `the_process_that_crashes`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use control_api::CrashPoint;

use crate::harness::{TempFolder, WebhookReceiver};

/// Environment variables of the process: its folder, its receiver, and the number of the commit
/// point at which it aborts.
const FOLDER_VAR: &str = "VISAVIS_COMMIT_CRASH_FOLDER";
const RECEIVER_VAR: &str = "VISAVIS_COMMIT_CRASH_RECEIVER";
const OCCURRENCE_VAR: &str = "VISAVIS_COMMIT_CRASH_AT";
/// Maximum number of commit points. The tasks of the server commit in no fixed order.
pub(crate) const MAX_POINTS: u32 = 40;

static ARMED: AtomicBool = AtomicBool::new(false);
static REACHED: AtomicU32 = AtomicU32::new(0);

/// The crash hook of the process.
pub(crate) fn abort_at_commit(point: CrashPoint) {
    let is_commit = matches!(point, CrashPoint::BeforeCommit | CrashPoint::AfterCommit);
    if !is_commit || !ARMED.load(Ordering::Relaxed) {
        return;
    }
    let reached = REACHED.fetch_add(1, Ordering::Relaxed) + 1;
    if reached == std::env::var(OCCURRENCE_VAR).unwrap().parse::<u32>().unwrap() {
        std::process::abort();
    }
}

/// Commits count from now on.
pub(crate) fn arm() {
    ARMED.store(true, Ordering::Relaxed);
}

/// The folder of this process.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(std::env::var(FOLDER_VAR).expect("started by the other test"))
}

/// Where this process sends webhooks.
pub(crate) fn receiver_url() -> String {
    std::env::var(RECEIVER_VAR).unwrap()
}

/// This process reached the end without a crash.
pub(crate) fn finish() {
    std::fs::write(folder().join("finished"), b"").unwrap();
}

/// Runs the process of a test module, which crashes at the `at`th commit point. False if it reached
/// no such point.
pub(crate) async fn crashes(
    module: &str,
    at: u32,
    folder: &TempFolder,
    hooks: &WebhookReceiver,
) -> bool {
    let test = format!("{module}::the_process_that_crashes");
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--ignored"])
        .env(FOLDER_VAR, &folder.0)
        .env(RECEIVER_VAR, &hooks.url)
        .env(OCCURRENCE_VAR, at.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let crashed = !output.status.success();
    assert_ne!(crashed, folder.0.join("finished").exists(), "commit {at}: {output:?}");
    crashed
}
