//! Previews, rendered by a child process with low priority: calls are not affected, and a crash is
//! only a failed preview.
//!
//! There is one child process. It starts with the first request and renders one picture after the
//! other. Workspaces take turns. Each key has at most one waiting request: a newer one replaces it.
//!
//! ```text
//!              request                       idle for 60 s, error, or timeout
//!   no process --------> RenderProcess runs ---------------------------------> no process
//!                         |         ^
//!                         +---------+ next request
//! ```

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use crate::error::ApiError;
use crate::state::preview_queue::PreviewRenderer;
use crate::state::supervise::BackgroundTask;

/// Maximum time for one picture. It takes about a second, and longer if calls need the CPU.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the child process runs without a request. It caches the hair of the last character.
const PROCESS_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a picture that is accepted from the child, bytes.
const MAX_IMAGE_BYTES: u32 = 4 << 20;

/// The running child process.
struct RenderProcess {
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Killed when this is dropped.
    _child: Child,
}

impl RenderProcess {
    fn start(command: &[OsString]) -> std::io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::NotFound)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg("draw")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(pictures)) => {
                Ok(Self { stdin: orders, stdout: pictures, _child: child })
            }
            _ => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The picture of a request; `None` if the request cannot be rendered.
    async fn render(&mut self, line: &[u8]) -> std::io::Result<Option<Bytes>> {
        self.stdin.write_all(line).await?;
        self.stdin.flush().await?;
        let length = self.stdout.read_u32_le().await?;
        if length > MAX_IMAGE_BYTES {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut picture = vec![0; length as usize];
        self.stdout.read_exact(&mut picture).await?;
        Ok((!picture.is_empty()).then(|| picture.into()))
    }
}

/// The task that renders previews.
pub(crate) struct PreviewTask {
    /// The requests.
    pub(crate) renderer: Arc<PreviewRenderer>,
    /// Program and arguments that bake and draw avatars.
    pub(crate) command: Vec<OsString>,
}

impl BackgroundTask for PreviewTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        const PREVIEW_FAILED: &str = "The preview could not be rendered";
        let mut process: Option<RenderProcess> = None;
        loop {
            let Some(order) = self.renderer.dequeue() else {
                tokio::select! {
                    () = self.renderer.wake.notified() => {}
                    () = tokio::time::sleep(PROCESS_IDLE_TIMEOUT), if process.is_some() => {
                        process = None;
                    }
                    _ = stop.wait_for(|stop| *stop) => return,
                }
                continue;
            };
            let rendering = render_with_restart(&mut process, &self.command, &order.request_line);
            let rendered = tokio::select! {
                rendered = tokio::time::timeout(PREVIEW_TIMEOUT, rendering) => rendered,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let answer = match rendered {
                Ok(Ok(Some(picture))) => Ok(picture),
                Ok(Ok(None)) => Err(ApiError::Internal(
                    PREVIEW_FAILED,
                    "the renderer rejected the request".into(),
                )),
                // The next response of this process could belong to this request.
                Ok(Err(error)) => {
                    process = None;
                    Err(ApiError::Internal(PREVIEW_FAILED, error.to_string()))
                }
                Err(_) => {
                    process = None;
                    Err(ApiError::NoCapacity("calls leave no CPU time for previews".into()))
                }
            };
            // The client may have disconnected.
            let _ = order.reply.send(answer);
        }
    }
}

async fn render_with_restart(
    process: &mut Option<RenderProcess>,
    command: &[OsString],
    request_line: &[u8],
) -> std::io::Result<Option<Bytes>> {
    // A process that was started for an earlier picture may have been killed meanwhile.
    if let Some(image) = match process {
        Some(old) => old.render(request_line).await.ok(),
        None => None,
    } {
        return Ok(image);
    }
    process.insert(RenderProcess::start(command)?).render(request_line).await
}
