//! The server's side of a request over HTTP/1.1. Each one has a connection of its own.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::KEY;

/// A status with its body, as a server sends it.
pub(crate) struct Status {
    /// Such as `401 Unauthorized`. Further headers may follow.
    pub(crate) line: &'static str,
    pub(crate) body: String,
}

impl Status {
    pub(crate) fn new(line: &'static str, body: impl ToString) -> Self {
        Self { line, body: body.to_string() }
    }
}

/// A request, and its response so far.
pub(crate) struct Exchange {
    stream: TcpStream,
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Exchange {
    /// Reads a request; `None` if the client gives up the connection before.
    pub(crate) async fn read(mut stream: TcpStream) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        stream.read_exact(&mut body).await.ok()?;
        let exchange = Self { stream, head, body };
        assert!(!exchange.target().contains(KEY), "{}", exchange.target());
        Some(exchange)
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Sends bytes. A client that has gone is no failure of the server.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Sends a whole response, and ends the connection.
    pub(crate) async fn reply(self, status: &str, body: &str) {
        self.reply_bytes(status, body.len(), body.as_bytes()).await;
    }

    /// The same with bytes, of which there shall be `length`.
    pub(crate) async fn reply_bytes(mut self, status: &str, length: usize, body: &[u8]) {
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        self.write(head.as_bytes()).await;
        self.write(body).await;
    }

    /// Begins a response whose pieces follow.
    pub(crate) async fn begin(&mut self, content_type: &str) {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\
             connection: close\r\n\r\n"
        );
        self.write(head.as_bytes()).await;
    }

    /// Sends a piece of the body.
    pub(crate) async fn piece(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.write(format!("{:x}\r\n", bytes.len()).as_bytes()).await;
            self.write(bytes).await;
            self.write(b"\r\n").await;
        }
    }

    /// Ends the body and the connection.
    pub(crate) async fn end(mut self) {
        self.write(b"0\r\n\r\n").await;
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn closed(&mut self) {
        while !matches!(self.stream.read(&mut [0; 64]).await, Ok(0) | Err(_)) {}
    }
}
