//! Previews, rendered by a child process with low priority: calls are not affected, and a crash is
//! only a failed preview.
//!
//! There is one child process. It starts with the first request and renders one picture after the
//! other. Each key has at most one waiting request: a newer one replaces it.
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
use crate::state::AppState;

/// Maximum time for one picture. It takes about a second, and longer if calls need the CPU.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the child process runs without a request. It caches the hair of the last character.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum size of a picture that is accepted from the child, bytes.
const LARGEST: u32 = 4 << 20;

/// The running child process.
struct Hand {
    orders: ChildStdin,
    pictures: ChildStdout,
    /// Killed when this is dropped.
    _child: Child,
}

impl Hand {
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
            (Some(orders), Some(pictures)) => Ok(Self { orders, pictures, _child: child }),
            _ => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The picture of a request; `None` if the request cannot be rendered.
    async fn draw(&mut self, line: &[u8]) -> std::io::Result<Option<Bytes>> {
        self.orders.write_all(line).await?;
        self.orders.flush().await?;
        let length = self.pictures.read_u32_le().await?;
        if length > LARGEST {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut picture = vec![0; length as usize];
        self.pictures.read_exact(&mut picture).await?;
        Ok((!picture.is_empty()).then(|| picture.into()))
    }
}

/// Renders previews until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    let mut hand: Option<Hand> = None;
    loop {
        let Some(order) = shared.painter.next() else {
            tokio::select! {
                () = shared.painter.wake.notified() => {}
                () = tokio::time::sleep(IDLE), if hand.is_some() => hand = None,
                _ = stop.wait_for(|stop| *stop) => return,
            }
            continue;
        };
        let drawn = tokio::select! {
            drawn = tokio::time::timeout(PATIENCE, draw(&mut hand, &shared.baker, &order.line)) => drawn,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        const FAILED: &str = "The preview could not be drawn";
        let answer = match drawn {
            Ok(Ok(Some(picture))) => Ok(picture),
            Ok(Ok(None)) => Err(ApiError::Failed(FAILED, "the renderer rejected the request".into())),
            // The next response of this process could belong to this request.
            Ok(Err(error)) => {
                hand = None;
                Err(ApiError::Failed(FAILED, error.to_string()))
            }
            Err(_) => {
                hand = None;
                Err(ApiError::NoCapacity("calls leave no time for previews".into()))
            }
        };
        // The client may have disconnected.
        let _ = order.reply.send(answer);
    }
}

async fn draw(hand: &mut Option<Hand>, command: &[OsString], line: &[u8]) -> std::io::Result<Option<Bytes>> {
    // A process that was started for an earlier picture may have been killed meanwhile.
    if let Some(picture) = match hand {
        Some(old) => old.draw(line).await.ok(),
        None => None,
    } {
        return Ok(picture);
    }
    hand.insert(Hand::start(command)?).draw(line).await
}
