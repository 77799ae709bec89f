//! Slow or idle clients hold no connection and lock out no other client. The clock is paused while
//! they are idle; the test advances it.

use std::io::ErrorKind;
use std::time::Duration;

use control_api::HttpLimits;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{
    PausedClock, TEST_API_KEY, TEST_TIMEOUT, TempFolder, TestServer, agent_body, wait_for,
};

/// The server's timeout for a client, and a time just below it. Unread responses are the exception:
/// the kernel times them out, with its own clock.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(400);
const JUST_BEFORE_TIMEOUT: Duration = Duration::from_millis(399);
const SECOND: Duration = Duration::from_secs(1);
const HEALTH_REQUEST: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn start_server(folder: &TempFolder, connections: usize) -> TestServer {
    TestServer::start_with_limits(
        &folder.0,
        HttpLimits {
            request_timeout: REQUEST_TIMEOUT,
            max_connections: connections,
            ..HttpLimits::default()
        },
        |_| {},
    )
    .await
}

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(server.url.trim_start_matches("http://")).await.unwrap()
}

/// Sends a request on a connection of its own. As soon as it is answered, the server has accepted
/// everything that was sent earlier on other connections.
async fn request_health(server: &TestServer) -> TcpStream {
    let mut stream = connect(server).await;
    stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
    assert!(read_response(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

/// The whole response to a request on a connection of its own, which the server closes.
async fn request_once(server: &TestServer, request: &str) -> String {
    let mut stream = connect(server).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until_closed(&mut stream).await
}

/// Everything that the server sends until it closes the connection.
async fn read_until_closed(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut response)).await;
    read.expect("the connection stays open").unwrap();
    String::from_utf8(response).unwrap()
}

/// The connection is open, and the server has sent nothing.
#[track_caller]
fn assert_open(stream: &TcpStream) {
    let read = stream.try_read(&mut [0; 100]);
    assert!(read.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "{read:?}");
}

/// Header and body of one response with a `content-length`.
async fn read_response(stream: &mut TcpStream) -> String {
    let mut response = String::new();
    let mut byte = [0];
    while !response.ends_with("\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "closed after {response:?}");
        response.push(char::from(byte[0]));
    }
    let length = response
        .lines()
        .find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_else(|| panic!("no length: {response}"))];
    stream.read_exact(&mut body).await.unwrap();
    response + &String::from_utf8(body).unwrap()
}

fn post_head(length: usize) -> String {
    format!(
        "POST /v1/ext/agent HTTP/1.1\r\nhost: localhost\r\nx-api-key: {TEST_API_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_connection_with_an_incomplete_header_is_closed() {
    let folder = TempFolder::new();
    let server = start_server(&folder, 8).await;
    let clock = PausedClock::pause();
    let mut half = connect(&server).await;
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").await.unwrap();
    let mut silent = connect(&server).await;
    request_health(&server).await;
    clock.advance(JUST_BEFORE_TIMEOUT).await;
    request_health(&server).await;
    assert_open(&half);
    assert_open(&silent);
    clock.advance(SECOND).await;
    assert_eq!(
        (read_until_closed(&mut half).await, read_until_closed(&mut silent).await),
        (String::new(), String::new())
    );
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_more_is_closed() {
    let folder = TempFolder::new();
    let server = start_server(&folder, 8).await;
    let clock = PausedClock::pause();
    let mut stream = connect(&server).await;
    for _ in 0..2 {
        stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
        assert!(
            read_response(&mut stream).await.starts_with("HTTP/1.1 200"),
            "kept alive between requests"
        );
        clock.advance(JUST_BEFORE_TIMEOUT).await;
        request_health(&server).await;
        assert_open(&stream);
    }
    clock.advance(SECOND).await;
    assert_eq!(read_until_closed(&mut stream).await, "");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_408() {
    let folder = TempFolder::new();
    let server = start_server(&folder, 8).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let clock = PausedClock::pause();
    for start in ["", "{\"agent_name\":"] {
        let mut stream = connect(&server).await;
        stream.write_all((post_head(100) + start).as_bytes()).await.unwrap();
        request_health(&server).await;
        clock.advance(JUST_BEFORE_TIMEOUT).await;
        request_health(&server).await;
        assert_open(&stream);
        clock.advance(SECOND).await;
        let response = read_until_closed(&mut stream).await;
        assert!(response.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{response}");
        assert!(
            response.ends_with("\r\n\r\n{\"error\":\"Request body was not sent in time\"}"),
            "{response}"
        );
        assert!(response.contains("connection: close"), "{response}");
    }
    // Clients of the signaling endpoint get the same response, with the headers that let a page of
    // another origin read it.
    let mut stream = connect(&server).await;
    let head = format!(
        "POST /rtc/{id} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/sdp\r\ncontent-length: 9\r\n\r\nv=0"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    request_health(&server).await;
    clock.advance(SECOND).await;
    let response = read_until_closed(&mut stream).await;
    assert!(
        response.starts_with("HTTP/1.1 408") && response.contains("access-control-allow-origin: *"),
        "{response}"
    );
}

#[tokio::test]
async fn a_long_body_has_more_time() {
    let folder = TempFolder::new();
    let server = start_server(&folder, 8).await;
    let body = agent_body(json!({"agent_system_prompt": "x".repeat(12_000)})).to_string();
    let clock = PausedClock::pause();
    let mut stream = connect(&server).await;
    stream.write_all(post_head(body.len()).as_bytes()).await.unwrap();
    let (first, last) = body.as_bytes().split_at(8000);
    stream.write_all(first).await.unwrap();
    request_health(&server).await;
    // 8,000 bytes add nearly two seconds to the timeout (4 KiB per second).
    clock.advance(4 * REQUEST_TIMEOUT).await;
    stream.write_all(last).await.unwrap();
    let response = read_response(&mut stream).await;
    // For the tasks of a server on PostgreSQL, the jump of the clock may look like an outage.
    let is_read = ["HTTP/1.1 200", "HTTP/1.1 503"].iter().any(|start| response.starts_with(start));
    assert!(is_read, "{response}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_reads_no_response_is_closed() {
    let folder = TempFolder::new();
    // The kernel measures this time in real seconds. It is long enough that a shorter stall of the
    // test does not matter.
    let bounds = HttpLimits {
        request_timeout: Duration::from_secs(4),
        max_connections: 1,
        ..HttpLimits::default()
    };
    let server = TestServer::start_with_limits(&folder.0, bounds, |_| {}).await;
    let mut stream = connect(&server).await;
    let (mut read, mut write) = stream.split();
    let (ask, unread) = ("GET /assets/call.js HTTP/1.1\r\nhost: localhost\r\n\r\n", 64 << 20);
    let requests = ask.repeat(unread / 10_000);
    let asking = async {
        // At some point the server can neither send more nor accept more.
        let _ = write.write_all(requests.as_bytes()).await;
        std::future::pending::<()>().await;
    };
    let watching = async {
        // From the first byte on, the connection is in use. The rest is never read.
        read.read_exact(&mut [0]).await.unwrap();
        let path = "/v1/ext/avatars";
        assert_eq!(server.get(path).await.status, 503, "the only slot is busy");
        wait_for("the only slot to be free again", async || {
            (server.get(path).await.status == 200).then_some(())
        })
        .await;
    };
    tokio::select! {
        () = asking => unreachable!(),
        () = watching => {}
    }
}

#[tokio::test]
async fn a_connection_more_than_there_are_places_replaces_the_one_that_is_idle_longest() {
    let folder = TempFolder::new();
    let server = start_server(&folder, 2).await;
    let clock = PausedClock::pause();
    let [mut first, mut second] = [request_health(&server).await, request_health(&server).await];
    // The first connection sends another request, so the second one has been idle for longer.
    first.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
    read_response(&mut first).await;
    let third = request_health(&server).await;
    assert_eq!(read_until_closed(&mut second).await, "");
    assert_open(&first);
    assert_open(&third);
    assert_eq!(clock.elapsed(), Duration::ZERO, "nobody waited");
}

#[tokio::test]
async fn health_checks_and_calls_are_served_while_all_connections_are_in_use() {
    let folder = TempFolder::new();
    let bounds =
        HttpLimits { request_timeout: TEST_TIMEOUT, max_connections: 1, ..HttpLimits::default() };
    let server = TestServer::start_with_limits(&folder.0, bounds, |_| {}).await;
    let agent_id = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent_id).await;
    let body = agent_body(json!({})).to_string();
    let clock = PausedClock::pause();
    let mut busy = connect(&server).await;
    let head = post_head(body.len()).replacen("host", "expect: 100-continue\r\nhost", 1);
    busy.write_all(head.as_bytes()).await.unwrap();
    // The server sends `100 Continue` when it waits for the body. From then on the connection is in
    // use.
    let mut interim = [0; 25];
    busy.read_exact(&mut interim).await.unwrap();
    assert_eq!(interim.as_slice(), b"HTTP/1.1 100 Continue\r\n\r\n");
    let response =
        request_once(&server, "GET /v1/ext/avatars HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{response}");
    assert!(
        response.ends_with(
            "\r\n\r\n{\"error\":\"No capacity\",\"reason\":\"all connections are in use\"}"
        ),
        "{response}"
    );
    for header in
        ["connection: close\r\n", "retry-after: 2\r\n", "x-content-type-options: nosniff\r\n"]
    {
        assert!(response.contains(header), "{header}: {response}");
    }
    for path in ["/healthz", "/readyz"] {
        let response =
            request_once(&server, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert!(
            response.starts_with("HTTP/1.1 200") && response.contains("connection: close\r\n"),
            "{path}: {response}"
        );
    }
    let signaling_request = |path: &str, kind: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let response =
        request_once(&server, &signaling_request(&format!("/rtc/{id}"), "application/sdp", "v=0"))
            .await;
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    let offer = json!({"sdp": "v=0", "type": "offer"}).to_string();
    let response =
        request_once(&server, &signaling_request("/api/offer", "application/json", &offer)).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    busy.write_all(body.as_bytes()).await.unwrap();
    assert!(
        read_response(&mut busy).await.starts_with("HTTP/1.1 200"),
        "its slot was not reassigned"
    );
    assert_eq!(clock.elapsed(), Duration::ZERO, "nobody waited");
}

#[tokio::test]
async fn a_stop_closes_what_is_idle_and_lets_a_request_end() {
    let folder = TempFolder::new();
    let bounds =
        HttpLimits { request_timeout: TEST_TIMEOUT, max_connections: 8, ..HttpLimits::default() };
    let server = TestServer::start_with_limits(&folder.0, bounds, |_| {}).await;
    let body = agent_body(json!({})).to_string();
    let (mut idle, mut busy) = (connect(&server).await, connect(&server).await);
    idle.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
    read_response(&mut idle).await;
    busy.write_all((post_head(body.len()) + "{").as_bytes()).await.unwrap();
    drop(request_health(&server).await);
    let clock = PausedClock::pause();
    let stopping = tokio::spawn(server.stop());
    assert_eq!(read_until_closed(&mut idle).await, "");
    busy.write_all(&body.as_bytes()[1..]).await.unwrap();
    let response = read_until_closed(&mut busy).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    stopping.await.unwrap();
    assert_eq!(clock.elapsed(), Duration::ZERO, "the stop waited although no request was running");
}
