//! Connections from addresses other than this machine's, over pipes, in virtual time.

use std::net::IpAddr;

use axum::http::Uri;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::*;
use crate::http::connection_slots::RESERVED_SLOTS;

/// Size of a response that is larger than a pipe's buffer.
const LONG_BODY_BYTES: usize = 100_000;

/// A listener to which a test connects from any address.
struct PipeListener(mpsc::UnboundedReceiver<(DuplexStream, SocketAddr)>);

impl Listener for PipeListener {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(next) => next,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([192, 0, 2, 254], 80)))
    }
}

/// Responds once the body of the request is complete.
async fn respond(uri: Uri, _body: Bytes) -> Response {
    match uri.path() {
        "/long" => "x".repeat(LONG_BODY_BYTES).into_response(),
        // A response that starts and never ends.
        "/held" => {
            let begun = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"."))]);
            Body::from_stream(begun.chain(stream::pending())).into_response()
        }
        _ => "well".into_response(),
    }
}

struct TestServer(mpsc::UnboundedSender<(DuplexStream, SocketAddr)>);

impl TestServer {
    fn start(connections: usize, proxies: &[&str]) -> Self {
        let router = Router::new().fallback(respond);
        let limits = HttpLimits {
            max_connections: connections,
            trusted_proxies: proxies.iter().map(|text| text.parse().unwrap()).collect(),
            ..HttpLimits::default()
        };
        let (connect, listener) = mpsc::unbounded_channel();
        tokio::spawn(accept_connections(
            PipeListener(listener),
            |_| {},
            router,
            limits,
            std::future::pending(),
        ));
        Self(connect)
    }

    fn connect(&self, from: &str) -> DuplexStream {
        let (client, server) = tokio::io::duplex(4096);
        let from: IpAddr = from.parse().unwrap();
        self.0.send((server, SocketAddr::new(from, 1))).unwrap();
        client
    }

    /// Opens a connection whose response does not end.
    async fn open_held_response(&self, from: &str) -> DuplexStream {
        let mut client = self.connect(from);
        client.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b".\r\n") {
            said.push(client.read_u8().await.unwrap());
        }
        assert!(said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
        client
    }

    /// The response on a connection that sends one request and closes.
    async fn request_once(&self, from: &str) -> String {
        let mut client = self.connect(from);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        read_until_closed(&mut client).await
    }
}

async fn read_until_closed(client: &mut DuplexStream) -> String {
    let mut said = String::new();
    client.read_to_string(&mut said).await.unwrap();
    said
}

/// Whether the server has neither sent anything nor closed the connection.
fn is_open(client: &mut DuplexStream) -> bool {
    client.read_u8().now_or_never().is_none()
}

async fn assert_quarter_stays_open(
    server: &TestServer,
    from: impl Fn(usize) -> String,
    other: &str,
) {
    let started_at = Instant::now();
    let mut silent: Vec<_> = (0..100).map(|n| server.connect(&from(n))).collect();
    let said = server.request_once(other).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("well"), "{said}");
    for client in &mut silent[..98] {
        assert_eq!(read_until_closed(client).await, "");
    }
    assert!(silent[98..].iter_mut().all(is_open));
    assert_eq!(started_at.elapsed(), Duration::ZERO, "nobody waited");
}

#[tokio::test(start_paused = true)]
async fn an_address_gets_a_quarter_of_the_connections() {
    let server = TestServer::start(8, &[]);
    assert_quarter_stays_open(&server, |_| "192.0.2.1".into(), "192.0.2.2").await;
}

#[tokio::test(start_paused = true)]
async fn a_network_of_ipv6_holds_a_quarter_of_the_connections() {
    let server = TestServer::start(8, &[]);
    assert_quarter_stays_open(&server, |n| format!("2001:db8::{n:x}"), "2001:db8:0:1::1").await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_may_hold_all_connections() {
    let server = TestServer::start(8, &["10.0.0.0/8"]);
    for from in ["10.1.2.3", "127.0.0.1"] {
        let mut silent: Vec<_> = (0..9).map(|_| server.connect(from)).collect();
        assert_eq!(read_until_closed(&mut silent[0]).await, "");
        assert!(silent[1..].iter_mut().all(is_open), "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_yet_is_not_lost_to_another_connection() {
    let server = TestServer::start(2, &[]);
    let _held = server.open_held_response("192.0.2.1").await;
    let mut slow = server.connect("192.0.2.2");
    slow.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    // With the first byte the whole response is written, and most of it is in the server's buffer.
    let first = slow.read_u8().await.unwrap();
    assert!(server.request_once("192.0.2.3").await.starts_with("HTTP/1.1 200"));
    let said = read_until_closed(&mut slow).await;
    assert_eq!(first, b'H');
    assert!(said.ends_with(&"x".repeat(LONG_BODY_BYTES)), "{} bytes came", said.len());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_uses_its_share_gets_no_further_connection() {
    let server = TestServer::start(8, &[]);
    let mut held = Vec::new();
    for _ in 0..2 + RESERVED_SLOTS / 4 {
        held.push(server.open_held_response("192.0.2.1").await);
    }
    let started_at = Instant::now();
    assert_eq!(server.request_once("192.0.2.1").await, "", "closed without an answer");
    assert!(server.request_once("192.0.2.2").await.starts_with("HTTP/1.1 200"));
    assert!(held.iter_mut().all(is_open));
    assert_eq!(started_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_connection_at_a_reserved_place_has_a_second_for_one_request() {
    let server = TestServer::start(2, &[]);
    let mut held = [
        server.open_held_response("192.0.2.1").await,
        server.open_held_response("192.0.2.2").await,
    ];
    let started_at = Instant::now();
    let mut client = server.connect("192.0.2.3");
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let said = read_until_closed(&mut client).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("connection: close\r\n"), "{said}");
    assert_eq!(started_at.elapsed(), Duration::ZERO);
    let mut silent = server.connect("192.0.2.3");
    assert_eq!(read_until_closed(&mut silent).await, "");
    assert!(
        (1000..=1010).contains(&started_at.elapsed().as_millis()),
        "{:?}",
        started_at.elapsed()
    );
    let mut half = server.connect("192.0.2.3");
    half.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
    let said = read_until_closed(&mut half).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    // A client that keeps sending has no more time either.
    let started_at = Instant::now();
    let mut drips = server.connect("192.0.2.3");
    drips.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 65536\r\n\r\n").await.unwrap();
    drips.write_all(&[b'x'; 60_000]).await.unwrap();
    let said = read_until_closed(&mut drips).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    assert!(
        (1000..=1010).contains(&started_at.elapsed().as_millis()),
        "{:?}",
        started_at.elapsed()
    );
    assert!(held.iter_mut().all(is_open), "a busy connection is kept");
}
