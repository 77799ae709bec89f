//! A connection's stream. The connection is active while the client does not read what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::connection_slots::{InUse, Taken};

/// For the server's code a response is complete once its last bytes are in a buffer. For the client
/// it is not: a slow client must not be evicted before it has read the response.
pub(super) struct Stream<'a, S> {
    stream: S,
    place: &'a Taken,
    unsent: Option<InUse>,
}

impl<'a, S> Stream<'a, S> {
    pub(super) fn new(stream: S, place: &'a Taken) -> Self {
        Self { stream, place, unsent: None }
    }

    /// Records how many of the offered bytes were written. The connection is active while bytes are
    /// pending.
    fn note(&mut self, offered: usize, taken: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &taken {
            Poll::Pending if self.unsent.is_none() => self.unsent = self.place.begin(),
            Poll::Ready(Ok(taken)) if *taken < offered => {}
            Poll::Pending => {}
            Poll::Ready(_) => self.unsent = None,
        }
        taken
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(bytes.len(), taken)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(parts.iter().map(|part| part.len()).sum(), taken)
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
