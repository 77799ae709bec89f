//! A hosted voice over a WebSocket: one connection for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::codec::Codec;
use super::session::{Command, Session};
use super::{Timeouts, may_be_vendor_voice};
use crate::hosted::Endpoint;
use crate::hosted::connection::ConnectedTime;
use crate::tts::{Event, Request, Tts};
use crate::{Error, ErrorKind, Handle, Sink};

/// The voices of a vendor. A text that belongs to no call is spoken over a connection of its own.
pub(in crate::tts) struct SocketTts<F> {
    endpoint: Endpoint,
    make_codec: F,
    timeouts: Timeouts,
    runtime: Runtime,
}

impl<C: Codec, F: Fn() -> C + Send + Sync> SocketTts<F> {
    /// The voices of the vendor at `endpoint`, whose address the codec supplies. Tasks run on
    /// `runtime`.
    pub(in crate::tts) fn new(
        endpoint: Endpoint,
        make_codec: F,
        timeouts: Timeouts,
        runtime: Runtime,
    ) -> Self {
        Self { endpoint, make_codec, timeouts, runtime }
    }

    fn open(&self, like: &Request) -> CallTts {
        let (commands, receiver) = mpsc::unbounded_channel();
        let (endpoint, codec) = (self.endpoint.clone(), (self.make_codec)());
        let session = Session::new(endpoint, codec, self.timeouts, receiver, like);
        let connected = session.connected();
        self.runtime.spawn(session.run());
        CallTts { commands, next_id: AtomicU64::new(0), connected }
    }
}

impl<C: Codec, F: Fn() -> C + Send + Sync> Tts for SocketTts<F> {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        // The connection is closed when the handle is dropped.
        self.open(&request).speak(request, sink)
    }

    fn open_call(&self, like: &Request) -> Option<Arc<dyn Tts>> {
        Some(Arc::new(self.open(like)))
    }

    fn has_voice(&self, voice: &str) -> bool {
        may_be_vendor_voice(voice)
    }
}

/// The voice of one call. The task ends with it and with the handles of its segments.
struct CallTts {
    commands: mpsc::UnboundedSender<Command>,
    next_id: AtomicU64,
    connected: Arc<ConnectedTime>,
}

impl Tts for CallTts {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let command = Command::Speak { id, request: Box::new(request), sink, at: Instant::now() };
        // The task ends before its senders only by a panic, which is logged.
        let ended = |_| Error::new(ErrorKind::Failed, "the connection to the TTS is lost");
        self.commands.send(command).map_err(ended)?;
        let commands = self.commands.clone();
        Ok(Handle::new(move || drop(commands.send(Command::Cancel(id)))))
    }

    fn cancel_reply(&self, reply: u64) {
        drop(self.commands.send(Command::CancelReply(reply)));
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        report("", self.connected.total(Instant::now()));
    }

    fn has_voice(&self, voice: &str) -> bool {
        may_be_vendor_voice(voice)
    }
}
