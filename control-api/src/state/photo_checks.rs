//! Checks of uploaded photos and backgrounds in child processes: a few at a time, with a bounded queue and a time
//! limit. The child's code is `models::face::photo_upload`.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use models::face::photo_upload::{AcceptedPhoto, Request, Response, Task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::error::ApiError;

/// Maximum number of checks at a time.
const MAX_RUNNING: usize = 2;
/// Maximum number of checks that run or wait.
const MAX_REQUESTED: usize = 10;
/// Maximum time for one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read from a child: the crop and some previews.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

fn failed(why: &str) -> ApiError {
    ApiError::Internal("The photo could not be checked", why.into())
}

/// Runs the checks.
pub(crate) struct PhotoChecks {
    /// Program and arguments.
    command: Vec<OsString>,
    running: Semaphore,
    requested: Semaphore,
}

impl PhotoChecks {
    pub(crate) fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            running: Semaphore::new(MAX_RUNNING),
            requested: Semaphore::new(MAX_REQUESTED),
        }
    }

    /// Checks a photo.
    ///
    /// # Errors
    /// 400 if the photo or its landmarks cannot be used, 503 if too many checks wait or the networks
    /// are not installed.
    pub(crate) async fn check(&self, request: Request) -> Result<AcceptedPhoto, ApiError> {
        match self.ask(&Task::Photo(request)).await? {
            Response::Accepted(photo) => Ok(*photo),
            Response::Refused { error, reason } => Err(ApiError::UnusablePhoto { error, reason }),
            Response::InvalidLandmarks { path, reason } => {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                Err(ApiError::invalid_field(format!("landmarks{dot}{path}"), reason))
            }
            Response::NoNetworks(why) => {
                Err(ApiError::Unavailable(format!("{why}; without it, a photo needs `landmarks`")))
            }
            Response::Background(_) => Err(failed("the child did another task")),
        }
    }

    /// Decodes and shrinks the picture of a background, a file in base64. Returns it as such a file,
    /// or one sentence that says why it cannot be used.
    ///
    /// # Errors
    /// 503 if too many checks wait.
    pub(crate) async fn normalize_background(
        &self,
        file: String,
    ) -> Result<Result<String, String>, ApiError> {
        match self.ask(&Task::Background(file)).await {
            Ok(Response::Background(file)) => Ok(Ok(file)),
            Ok(Response::Refused { error, .. }) | Err(ApiError::UnusablePhoto { error, .. }) => {
                Ok(Err(error))
            }
            Ok(_) => Err(failed("the child did another task")),
            Err(error) => Err(error),
        }
    }

    /// The response of a child.
    async fn ask(&self, task: &Task) -> Result<Response, ApiError> {
        let _requested = self
            .requested
            .try_acquire()
            .map_err(|_| ApiError::NoCapacity("too many pictures are checked at once".into()))?;
        let _running = self.running.acquire().await.map_err(|error| failed(&error.to_string()))?;
        let output = match tokio::time::timeout(CHECK_TIMEOUT, self.run(task)).await {
            Ok(output) => output.map_err(|error| failed(&error.to_string()))?,
            Err(_) => None,
        };
        let Some(output) = output else {
            return Err(ApiError::UnusablePhoto {
                error:
                    "the picture takes too much time or memory to read: save it with fewer pixels"
                        .into(),
                reason: "too complex".into(),
            });
        };
        serde_json::from_slice(&output)
            .map_err(|error| failed(&format!("the child's response is invalid: {error}")))
    }

    /// The output of a child; `None` if it ended by a limit.
    async fn run(&self, task: &Task) -> std::io::Result<Option<Vec<u8>>> {
        let (program, arguments) =
            self.command.split_first().ok_or(std::io::ErrorKind::NotFound)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let line = serde_json::to_vec(task)?;
        let write = async {
            // A child that has ended does not read.
            let _ = input.write_all(&line).await;
            drop(input);
        };
        let mut stdout = Vec::new();
        let mut output = output.take(MAX_OUTPUT_BYTES);
        let (read, ()) = tokio::join!(output.read_to_end(&mut stdout), write);
        read?;
        let status = child.wait().await?;
        if status.success() {
            return Ok(Some(stdout));
        }
        // It is ended by a signal at a limit, and so is a program that cannot allocate.
        if status.code().is_none() {
            Ok(None)
        } else {
            Err(std::io::Error::other(status.to_string()))
        }
    }
}
