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

use std::collections::VecDeque;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, oneshot, watch};

use crate::app::Shared;
use crate::auth::Hash;
use crate::error::ApiError;

/// Maximum number of queued previews: at about 1 s each, the wait stays acceptable.
const WAITING: usize = 8;
/// Maximum time for one picture. It takes about a second, and longer if calls need the CPU.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the child process runs without a request. It caches the hair of the last character.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum size of a picture that is accepted from the child, bytes.
const LARGEST: u32 = 4 << 20;

/// A requested preview.
struct Order {
    key: Hash,
    line: Bytes,
    reply: oneshot::Sender<Result<Bytes, ApiError>>,
}

/// Queue of preview requests.
#[derive(Default)]
pub(crate) struct Painter {
    waiting: Mutex<VecDeque<Order>>,
    wake: Notify,
}

impl Painter {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the picture of a request. A newer request of the same key replaces this one while it
    /// waits; this one is then refused.
    pub(crate) async fn draw(&self, key: Hash, line: Bytes) -> Result<Bytes, ApiError> {
        let (reply, picture) = oneshot::channel();
        self.place(Order { key, line, reply })?;
        self.wake.notify_one();
        let gone = |_| ApiError::NoCapacity("the server is shutting down".into());
        picture.await.map_err(gone)?
    }

    fn place(&self, order: Order) -> Result<(), ApiError> {
        let mut waiting = self.waiting();
        // Requests of clients that disconnected are removed.
        waiting.retain(|order| !order.reply.is_closed());
        if let Some(old) = waiting.iter_mut().find(|old| old.key == order.key) {
            let old = std::mem::replace(old, order);
            let _ = old.reply.send(Err(ApiError::Conflict("A newer preview was asked for".into())));
            return Ok(());
        }
        if waiting.len() >= WAITING {
            return Err(ApiError::NoCapacity("too many previews are wanted at once".into()));
        }
        waiting.push_back(order);
        Ok(())
    }

    fn next(&self) -> Option<Order> {
        let mut waiting = self.waiting();
        std::iter::from_fn(|| waiting.pop_front()).find(|order| !order.reply.is_closed())
    }
}

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
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
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
            Ok(Ok(None)) => Err(ApiError::Failed(FAILED, "the order was refused".into())),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn order(key: u8, line: &'static str) -> (Order, oneshot::Receiver<Result<Bytes, ApiError>>) {
        let (reply, answer) = oneshot::channel();
        (Order { key: [key; 32], line: Bytes::from_static(line.as_bytes()), reply }, answer)
    }

    #[test]
    fn a_newer_order_takes_the_place_of_the_one_that_waits() {
        let painter = Painter::default();
        let (first, mut stale) = order(1, "first");
        let (second, _other) = order(2, "second");
        let (third, mut fresh) = order(1, "third");
        for order in [first, second, third] {
            painter.place(order).unwrap();
        }
        assert!(matches!(stale.try_recv(), Ok(Err(ApiError::Conflict(_)))));
        assert!(fresh.try_recv().is_err(), "it waits");
        assert_eq!(painter.next().unwrap().line, "third", "in the first one's place");
        assert_eq!(painter.next().unwrap().line, "second");
        assert!(painter.next().is_none());
    }

    #[test]
    fn few_may_wait_and_who_hung_up_waits_no_more() {
        let painter = Painter::default();
        let mut held = Vec::new();
        for key in 0..WAITING as u8 {
            let (order, answer) = order(key, "x");
            painter.place(order).unwrap();
            held.push(answer);
        }
        let (late, _answer) = order(99, "late");
        assert!(matches!(painter.place(late), Err(ApiError::NoCapacity(_))));
        held.remove(0);
        let (late, _answer) = order(99, "late");
        painter.place(late).unwrap();
        held.clear();
        assert_eq!(painter.next().unwrap().line, "late");
        assert!(painter.next().is_none());
    }
}
