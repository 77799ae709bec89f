//! A connection's stream. The connection is active while the client does not read what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::connection_slots::{ActiveRequest, SlotPermit};

/// For the server's code a response is complete once its last bytes are in a buffer. For the client
/// it is not: a slow client must not be evicted before it has read the response.
pub(super) struct TrackedStream<S> {
    stream: S,
    permit: Arc<SlotPermit>,
    pending_write: Option<ActiveRequest>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, permit: Arc<SlotPermit>) -> Self {
        Self { stream, permit, pending_write: None }
    }

    /// Records how many of the offered bytes were written. The connection is active while bytes are
    /// pending.
    fn track_write(
        &mut self,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending if self.pending_write.is_none() => {
                self.pending_write = self.permit.start_request()
            }
            Poll::Ready(Ok(written)) if *written < offered => {}
            Poll::Pending => {}
            Poll::Ready(_) => self.pending_write = None,
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.track_write(bytes.len(), taken)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.track_write(parts.iter().map(|part| part.len()).sum(), taken)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
