//! Servers that hang, or that send streams or lists without end: they lose their tools, and leave
//! neither a connection nor a task behind.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{pause, resume, sleep, timeout};

use super::*;

/// How long a test waits for a state before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server has received.
#[derive(Clone, Debug, Default)]
struct ServerActivity {
    /// Connections that are open now.
    open_connections: usize,
    /// The requests in order: the method of the message, or the HTTP method without a body.
    requests: Vec<String>,
}

impl ServerActivity {
    fn count(&self, what: &str) -> usize {
        self.requests.iter().filter(|request| *request == what).count()
    }
}

/// Responds to a request and its message. Without output the client waits; an error closes the
/// connection.
type RespondFn = fn(&mut TcpStream, &str, &Value) -> io::Result<()>;

/// Runs the server on threads of its own, so that none of its tasks is in the test's runtime.
fn serve(kind: &str, respond: RespondFn) -> (ServerConfig, watch::Receiver<ServerActivity>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (activity_sender, seen) = watch::channel(ServerActivity::default());
    let activity_sender = Arc::new(activity_sender);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            activity_sender.send_modify(|seen| seen.open_connections += 1);
            let activity_sender = Arc::clone(&activity_sender);
            std::thread::spawn(move || {
                // Ends with the connection. Writing to a closed connection is an error.
                let _ = serve_connection(stream, respond, &activity_sender);
                activity_sender.send_modify(|seen| seen.open_connections -= 1);
            });
        }
    });
    let mcp = ServerConfig {
        name: "T".into(),
        kind: serde_json::from_value(kind.into()).unwrap(),
        url,
        headers: SecretHeaders::new(),
    };
    (mcp, seen)
}

/// Reads requests until the client closes the connection.
fn serve_connection(
    mut stream: TcpStream,
    says: RespondFn,
    tell: &watch::Sender<ServerActivity>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = head.split(' ').next().unwrap();
        let asked = message["method"].as_str().unwrap_or(method).to_owned();
        tell.send_modify(|seen| seen.requests.push(asked.clone()));
        says(&mut stream, &asked, &message)?;
    }
}

fn write_result(stream: &mut TcpStream, message: &Value, result: &Value) -> io::Result<()> {
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn write_status(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

/// The head of a streamed response, and its first text.
fn write_event_stream(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{words}")
}

/// Writes the same text until the client closes the connection.
fn write_forever(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    write_event_stream(stream, "")?;
    loop {
        stream.write_all(words.as_bytes())?;
    }
}

const NOTIFICATION: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// The responses of a well-behaved server with one tool.
fn respond_normally(stream: &mut TcpStream, request: &str, message: &Value) -> io::Result<()> {
    match request {
        "initialize" => {
            let version = &message["params"]["protocolVersion"];
            let info = json!({"name": "test", "version": "1"});
            write_result(
                stream,
                message,
                &json!({
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }),
            )
        }
        "tools/list" => write_result(stream, message, &tools_page(json!(null))),
        "tools/call" => {
            write_result(stream, message, &json!({"content": [{"type": "text", "text": "done"}]}))
        }
        "GET" => write_status(stream, "405 Method Not Allowed"),
        "DELETE" => write_status(stream, "204 No Content"),
        _ => write_status(stream, "202 Accepted"),
    }
}

fn tools_page(next: Value) -> Value {
    let tools = json!([{"name": "add", "inputSchema": {"type": "object"}}]);
    if next.is_null() {
        json!({ "tools": tools })
    } else {
        json!({"tools": tools, "nextCursor": next})
    }
}

type ToolsUpdate = Result<Vec<Tool>, String>;

/// Starts listing for a call with this server. Returns the future and the receiver of updates.
fn start_listing(mcp: ServerConfig) -> (BoxFuture<'static, ()>, UnboundedReceiver<ToolsUpdate>) {
    let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let servers = McpServers {
        client,
        conversation: "c".into(),
        own_tools: Vec::new(),
        servers: vec![Arc::new(mcp)],
    };
    let (update_sender, updates) = unbounded_channel();
    // The receiver may have been dropped with the test.
    (servers.list_tools(Box::new(move |update| drop(update_sender.send(update)))), updates)
}

fn unavailable(why: &str) -> ToolsUpdate {
    Err(format!("The tools of the MCP server \"T\" are not available: {why}."))
}

/// Asserts that one second after the end the runtime has no task. It then also has no connection,
/// because each one is held by a task. The second is measured by the runtime's clock, which jumps
/// from timer to timer: a task that then still waits for the server would never end. The server has
/// another clock, so the test only waits until the server has seen its connections close.
async fn assert_closed(case: &str, seen: &mut watch::Receiver<ServerActivity>) {
    pause();
    sleep(Duration::from_secs(1)).await;
    resume();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0, "{case}: tasks are left after a second");
    let closed = timeout(TEST_TIMEOUT, seen.wait_for(|seen| seen.open_connections == 0))
        .await
        .is_ok_and(|seen| seen.is_ok());
    assert!(closed, "{case}: {} connections are left", seen.borrow().open_connections);
}

/// Waits until the server received this request.
async fn wait_for_request(seen: &mut watch::Receiver<ServerActivity>, what: &str) {
    timeout(TEST_TIMEOUT, seen.wait_for(|seen| seen.count(what) > 0)).await.expect(what).unwrap();
}

fn never_respond(_: &mut TcpStream, _: &str, _: &Value) -> io::Result<()> {
    Ok(())
}

fn never_list_tools(stream: &mut TcpStream, request: &str, message: &Value) -> io::Result<()> {
    if request == "tools/list" { Ok(()) } else { respond_normally(stream, request, message) }
}

#[tokio::test]
async fn a_server_that_never_answers_keeps_nothing_when_the_call_ends_before_its_listing() {
    for (kind, at, respond) in [
        ("shttp", "initialize", never_respond as RespondFn),
        ("shttp/sse", "initialize", never_respond),
        ("sse", "GET", never_respond),
        ("shttp", "tools/list", never_list_tools),
    ] {
        let (mcp, mut seen) = serve(kind, respond);
        let (listing, mut updates) = start_listing(mcp);
        let listing = tokio::spawn(listing);
        wait_for_request(&mut seen, at).await;
        // The engine does this at the end of a call.
        listing.abort();
        assert_closed(&format!("{kind}, {at}"), &mut seen).await;
        assert!(
            updates.recv().await.is_none(),
            "{kind}, {at}: a call that has ended gets no report"
        );
    }
}

#[tokio::test]
async fn a_server_that_never_answers_keeps_nothing_when_its_time_is_over() {
    for (kind, at, respond) in [
        ("shttp", "initialize", never_respond as RespondFn),
        ("sse", "GET", never_respond),
        ("shttp", "tools/list", never_list_tools),
    ] {
        let (mcp, mut seen) = serve(kind, respond);
        let (mut listing, mut updates) = start_listing(mcp);
        tokio::select! {
            biased;
            () = &mut listing => panic!("it ended before the request to the server"),
            () = wait_for_request(&mut seen, at) => {}
        }
        // Only the timeout is left to wait for: the clock jumps to it.
        pause();
        listing.await;
        resume();
        assert_eq!(
            updates.recv().await,
            Some(unavailable("it did not list its tools within 10 s")),
            "{kind}, {at}"
        );
        assert_closed(&format!("{kind}, {at}"), &mut seen).await;
    }
}

#[tokio::test]
async fn a_stream_without_end_and_pages_without_end_are_closed_at_the_limit() {
    let of_messages = "it sent more than 2000 messages";
    let of_bytes = "it sent more than 8 MiB";
    let of_tools = "it has more than 64 tools";
    let cases: [(&str, &str, &str, RespondFn); 8] = [
        (
            "a stream for an answer",
            "shttp",
            of_messages,
            |stream, request, message| match request {
                "initialize" => write_forever(stream, NOTIFICATION),
                _ => respond_normally(stream, request, message),
            },
        ),
        ("a stream of comments", "shttp", of_bytes, |stream, request, message| match request {
            "initialize" => write_forever(stream, &format!(": {}\n\n", "x".repeat(16 << 10))),
            _ => respond_normally(stream, request, message),
        }),
        ("one event without end", "shttp", of_bytes, |stream, request, message| match request {
            "tools/list" => write_forever(stream, &"data: x\n".repeat(4 << 10)),
            _ => respond_normally(stream, request, message),
        }),
        ("an answer without end", "shttp", of_bytes, |stream, request, _| {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")?;
            assert_eq!(request, "initialize");
            loop {
                stream.write_all(&[b' '; 16 << 10])?;
            }
        }),
        ("the older transport", "sse", of_messages, |stream, request, message| match request {
            "GET" => write_forever(stream, NOTIFICATION),
            _ => respond_normally(stream, request, message),
        }),
        ("pages with a tool", "shttp", of_tools, |stream, request, message| match request {
            "tools/list" => write_result(stream, message, &tools_page(json!("next"))),
            _ => respond_normally(stream, request, message),
        }),
        (
            "empty pages among notes",
            "shttp",
            of_messages,
            |stream, request, message| match request {
                "tools/list" => {
                    write_event_stream(stream, &NOTIFICATION.repeat(99))?;
                    let result = json!({"tools": [], "nextCursor": "next"});
                    let last = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                    write!(stream, "data: {last}\n\n")?;
                    // The end of the connection is the end of the response.
                    Err(io::ErrorKind::ConnectionAborted.into())
                }
                _ => respond_normally(stream, request, message),
            },
        ),
        ("large pages", "shttp", of_bytes, |stream, request, message| match request {
            "tools/list" => {
                let large = json!([{
                    "name": "add",
                    "description": "x".repeat(1 << 20),
                    "inputSchema": {"type": "object"},
                }]);
                write_result(stream, message, &json!({"tools": large, "nextCursor": "next"}))
            }
            _ => respond_normally(stream, request, message),
        }),
    ];
    for (case, kind, why, respond) in cases {
        let (mcp, mut seen) = serve(kind, respond);
        let (listing, mut updates) = start_listing(mcp);
        listing.await;
        assert_eq!(updates.recv().await, Some(unavailable(why)), "{case}");
        assert_closed(case, &mut seen).await;
        assert!(updates.recv().await.is_none(), "{case}: it is reported once");
        if why == of_tools {
            assert_eq!(
                seen.borrow().count("tools/list"),
                MAX_TOOLS + 1,
                "no further page is requested"
            );
        }
    }
}

#[tokio::test]
async fn exceeding_a_limit_during_a_call_removes_the_tools_and_is_reported() {
    let (mcp, mut seen) = serve("shttp", |stream, request, message| match request {
        // The stream for server-initiated messages starts with the session; the tools are listed in
        // parallel.
        "GET" => write_event_stream(stream, ""),
        "tools/call" => write_forever(stream, NOTIFICATION),
        _ => respond_normally(stream, request, message),
    });
    let (listing, mut updates) = start_listing(mcp);
    listing.await;
    let tools = updates.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    assert!(add.0.is_open());
    let why = "it sent more than 2000 messages";
    let failed = add.0.call(json!({})).await;
    assert_eq!(failed, Err(format!("the MCP server's session was closed: {why}")));
    assert_eq!(updates.recv().await, Some(unavailable(why)));
    assert!(!add.0.is_open());
    // Closed while the call continues and still holds its tools.
    assert_closed("in mid-call", &mut seen).await;
    let calls = seen.borrow().count("tools/call");
    assert!(add.0.call(json!({})).await.is_err());
    assert_eq!(seen.borrow().count("tools/call"), calls, "it gets no further request");
}

#[tokio::test]
async fn a_tool_that_is_out_for_too_long_closes_the_session() {
    let (mcp, mut seen) = serve("shttp", |stream, request, message| match request {
        "tools/call" => Ok(()),
        _ => respond_normally(stream, request, message),
    });
    let (listing, mut updates) = start_listing(mcp);
    listing.await;
    let tools = updates.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    let mut call = add.0.call(json!({}));
    tokio::select! {
        biased;
        updates = &mut call => panic!("{updates:?}"),
        () = wait_for_request(&mut seen, "tools/call") => pause(),
    }
    assert_eq!(call.await, Err("the MCP server took too long".into()));
    resume();
    assert_eq!(updates.recv().await, Some(unavailable("one of its tools took longer than 20 s")));
    assert!(!add.0.is_open());
    assert_closed("a slow tool", &mut seen).await;
}

#[tokio::test]
async fn with_the_call_s_tools_the_session_ends_whatever_its_server_does() {
    let (mcp, mut seen) = serve("shttp", |stream, request, message| match request {
        "GET" => write_event_stream(stream, ": hello\n\n"),
        "tools/call" | "DELETE" => Ok(()),
        _ => respond_normally(stream, request, message),
    });
    let (listing, mut updates) = start_listing(mcp);
    listing.await;
    let tools = updates.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    let call = tokio::spawn(add.0.call(json!({})));
    wait_for_request(&mut seen, "GET").await;
    wait_for_request(&mut seen, "tools/call").await;
    drop(tools);
    assert_eq!(call.await.unwrap(), Err("the MCP server's session has ended".into()));
    // The server is notified, and need not respond.
    wait_for_request(&mut seen, "DELETE").await;
    assert_closed("with the call", &mut seen).await;
    assert!(
        updates.recv().await.is_none(),
        "the end of a call does not count as a failure of its servers"
    );
}
