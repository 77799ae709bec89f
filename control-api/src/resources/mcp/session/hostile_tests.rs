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
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server has received.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Connections that are open now.
    open: usize,
    /// The requests in order: the method of the message, or the HTTP method without a body.
    asked: Vec<String>,
}

impl Seen {
    fn count(&self, what: &str) -> usize {
        self.asked.iter().filter(|asked| *asked == what).count()
    }
}

/// Responds to a request and its message. Without output the client waits; an error closes the
/// connection.
type Says = fn(&mut TcpStream, &str, &Value) -> io::Result<()>;

/// Runs the server on threads of its own, so that none of its tasks is in the test's runtime.
fn serve(kind: &str, says: Says) -> (Configuration, watch::Receiver<Seen>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (tell, seen) = watch::channel(Seen::default());
    let tell = Arc::new(tell);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            tell.send_modify(|seen| seen.open += 1);
            let tell = Arc::clone(&tell);
            std::thread::spawn(move || {
                // Ends with the connection. Writing to a closed connection is an error.
                let _ = talk(stream, says, &tell);
                tell.send_modify(|seen| seen.open -= 1);
            });
        }
    });
    let mcp = Configuration { name: "T".into(), kind: kind.into(), url, headers: Headers::new() };
    (mcp, seen)
}

/// Reads requests until the client closes the connection.
fn talk(mut stream: TcpStream, says: Says, tell: &watch::Sender<Seen>) -> io::Result<()> {
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
        tell.send_modify(|seen| seen.asked.push(asked.clone()));
        says(&mut stream, &asked, &message)?;
    }
}

fn answer(stream: &mut TcpStream, message: &Value, result: &Value) -> io::Result<()> {
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn status(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

/// The head of a streamed response, and its first text.
fn stream_of(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{words}")
}

/// Writes the same text until the client closes the connection.
fn for_ever(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    stream_of(stream, "")?;
    loop {
        stream.write_all(words.as_bytes())?;
    }
}

const NOTE: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// The responses of a well-behaved server with one tool.
fn good(stream: &mut TcpStream, asked: &str, message: &Value) -> io::Result<()> {
    match asked {
        "initialize" => {
            let version = &message["params"]["protocolVersion"];
            let info = json!({"name": "test", "version": "1"});
            answer(
                stream,
                message,
                &json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}),
            )
        }
        "tools/list" => answer(stream, message, &page(json!(null))),
        "tools/call" => answer(stream, message, &json!({"content": [{"type": "text", "text": "done"}]})),
        "GET" => status(stream, "405 Method Not Allowed"),
        "DELETE" => status(stream, "204 No Content"),
        _ => status(stream, "202 Accepted"),
    }
}

fn page(next: Value) -> Value {
    let tools = json!([{"name": "add", "inputSchema": {"type": "object"}}]);
    if next.is_null() { json!({ "tools": tools }) } else { json!({"tools": tools, "nextCursor": next}) }
}

type News = Result<Vec<Tool>, String>;

/// Starts listing for a call with this server. Returns the future and the receiver of updates.
fn begun(mcp: Configuration) -> (BoxFuture<'static, ()>, UnboundedReceiver<News>) {
    let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let servers = Servers { client, conversation: "c".into(), servers: vec![Arc::new(mcp)] };
    let (tell, told) = unbounded_channel();
    // The receiver may have been dropped with the test.
    (servers.list_tools(Box::new(move |news| drop(tell.send(news)))), told)
}

fn left_out(why: &str) -> News {
    Err(format!("The tools of the MCP server \"T\" are left out: {why}."))
}

/// Asserts that one second after the end the runtime has no task. It then also has no connection,
/// because each one is held by a task. The second is measured by the runtime's clock, which jumps
/// from timer to timer: a task that then still waits for the server would never end. The server has
/// another clock, so the test only waits until the server has seen its connections close.
async fn gone(case: &str, seen: &mut watch::Receiver<Seen>) {
    pause();
    sleep(Duration::from_secs(1)).await;
    resume();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0, "{case}: tasks are left after a second");
    let closed = timeout(PATIENCE, seen.wait_for(|seen| seen.open == 0)).await.is_ok_and(|seen| seen.is_ok());
    assert!(closed, "{case}: {} connections are left", seen.borrow().open);
}

/// Waits until the server received this request.
async fn asked(seen: &mut watch::Receiver<Seen>, what: &str) {
    timeout(PATIENCE, seen.wait_for(|seen| seen.count(what) > 0)).await.expect(what).unwrap();
}

fn silent(_: &mut TcpStream, _: &str, _: &Value) -> io::Result<()> {
    Ok(())
}

fn lists_nothing(stream: &mut TcpStream, asked: &str, message: &Value) -> io::Result<()> {
    if asked == "tools/list" { Ok(()) } else { good(stream, asked, message) }
}

#[tokio::test]
async fn a_server_that_never_answers_keeps_nothing_when_the_call_ends_before_its_listing() {
    for (kind, at, says) in [
        ("shttp", "initialize", silent as Says),
        ("shttp/sse", "initialize", silent),
        ("sse", "GET", silent),
        ("shttp", "tools/list", lists_nothing),
    ] {
        let (mcp, mut seen) = serve(kind, says);
        let (listing, mut told) = begun(mcp);
        let listing = tokio::spawn(listing);
        asked(&mut seen, at).await;
        // The engine does this at the end of a call.
        listing.abort();
        gone(&format!("{kind}, {at}"), &mut seen).await;
        assert!(told.recv().await.is_none(), "{kind}, {at}: a call that is over is told nothing");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_keeps_nothing_when_its_time_is_over() {
    for (kind, at, says) in [
        ("shttp", "initialize", silent as Says),
        ("sse", "GET", silent),
        ("shttp", "tools/list", lists_nothing),
    ] {
        let (mcp, mut seen) = serve(kind, says);
        let (mut listing, mut told) = begun(mcp);
        tokio::select! {
            biased;
            () = &mut listing => panic!("it is over before the server was asked"),
            () = asked(&mut seen, at) => {}
        }
        // Only the timeout is left to wait for: the clock jumps to it.
        pause();
        listing.await;
        resume();
        assert_eq!(
            told.recv().await,
            Some(left_out("it did not tell its tools within 10 s")),
            "{kind}, {at}"
        );
        gone(&format!("{kind}, {at}"), &mut seen).await;
    }
}

#[tokio::test]
async fn a_stream_without_end_and_pages_without_end_are_closed_at_the_limit() {
    let of_messages = "it sent more than 2000 messages";
    let of_bytes = "it sent more than 8 MiB";
    let of_tools = "it has more than 64 tools";
    let cases: [(&str, &str, &str, Says); 8] = [
        ("a stream for an answer", "shttp", of_messages, |stream, asked, message| match asked {
            "initialize" => for_ever(stream, NOTE),
            _ => good(stream, asked, message),
        }),
        ("a stream of comments", "shttp", of_bytes, |stream, asked, message| match asked {
            "initialize" => for_ever(stream, &format!(": {}\n\n", "x".repeat(16 << 10))),
            _ => good(stream, asked, message),
        }),
        ("one event without end", "shttp", of_bytes, |stream, asked, message| match asked {
            "tools/list" => for_ever(stream, &"data: x\n".repeat(4 << 10)),
            _ => good(stream, asked, message),
        }),
        ("an answer without end", "shttp", of_bytes, |stream, asked, _| {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")?;
            assert_eq!(asked, "initialize");
            loop {
                stream.write_all(&[b' '; 16 << 10])?;
            }
        }),
        ("the older transport", "sse", of_messages, |stream, asked, message| match asked {
            "GET" => for_ever(stream, NOTE),
            _ => good(stream, asked, message),
        }),
        ("pages with a tool", "shttp", of_tools, |stream, asked, message| match asked {
            "tools/list" => answer(stream, message, &page(json!("next"))),
            _ => good(stream, asked, message),
        }),
        ("empty pages among notes", "shttp", of_messages, |stream, asked, message| match asked {
            "tools/list" => {
                stream_of(stream, &NOTE.repeat(99))?;
                let result = json!({"tools": [], "nextCursor": "next"});
                let last = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                write!(stream, "data: {last}\n\n")?;
                // The end of the connection is the end of the response.
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            _ => good(stream, asked, message),
        }),
        ("large pages", "shttp", of_bytes, |stream, asked, message| match asked {
            "tools/list" => {
                let large = json!([{"name": "add", "description": "x".repeat(1 << 20), "inputSchema": {"type": "object"}}]);
                answer(stream, message, &json!({"tools": large, "nextCursor": "next"}))
            }
            _ => good(stream, asked, message),
        }),
    ];
    for (case, kind, why, says) in cases {
        let (mcp, mut seen) = serve(kind, says);
        let (listing, mut told) = begun(mcp);
        listing.await;
        assert_eq!(told.recv().await, Some(left_out(why)), "{case}");
        gone(case, &mut seen).await;
        assert!(told.recv().await.is_none(), "{case}: it is told once");
        if why == of_tools {
            assert_eq!(seen.borrow().count("tools/list"), TOOLS + 1, "no page more is asked for");
        }
    }
}

#[tokio::test]
async fn a_server_that_goes_over_a_limit_in_mid_call_loses_its_tools_and_is_told_of() {
    let (mcp, mut seen) = serve("shttp", |stream, asked, message| match asked {
        // The stream for server-initiated messages starts with the session; the tools are listed in
        // parallel.
        "GET" => stream_of(stream, ""),
        "tools/call" => for_ever(stream, NOTE),
        _ => good(stream, asked, message),
    });
    let (listing, mut told) = begun(mcp);
    listing.await;
    let tools = told.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    assert!(add.0.is_open());
    let why = "it sent more than 2000 messages";
    let failed = add.0.call(json!({})).await;
    assert_eq!(failed, Err(format!("the MCP server's session was closed: {why}")));
    assert_eq!(told.recv().await, Some(left_out(why)));
    assert!(!add.0.is_open());
    // Closed while the call continues and still holds its tools.
    gone("in mid-call", &mut seen).await;
    let calls = seen.borrow().count("tools/call");
    assert!(add.0.call(json!({})).await.is_err());
    assert_eq!(seen.borrow().count("tools/call"), calls, "it is not asked any more");
}

#[tokio::test]
async fn a_tool_that_is_out_for_too_long_closes_the_session() {
    let (mcp, mut seen) = serve("shttp", |stream, asked, message| match asked {
        "tools/call" => Ok(()),
        _ => good(stream, asked, message),
    });
    let (listing, mut told) = begun(mcp);
    listing.await;
    let tools = told.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    let mut call = add.0.call(json!({}));
    tokio::select! {
        biased;
        told = &mut call => panic!("{told:?}"),
        () = asked(&mut seen, "tools/call") => pause(),
    }
    assert_eq!(call.await, Err("the MCP server took too long".into()));
    resume();
    assert_eq!(told.recv().await, Some(left_out("a tool of it took longer than 20 s")));
    assert!(!add.0.is_open());
    gone("a slow tool", &mut seen).await;
}

#[tokio::test]
async fn with_the_call_s_tools_the_session_ends_whatever_its_server_does() {
    let (mcp, mut seen) = serve("shttp", |stream, asked, message| match asked {
        "GET" => stream_of(stream, ": hello\n\n"),
        "tools/call" | "DELETE" => Ok(()),
        _ => good(stream, asked, message),
    });
    let (listing, mut told) = begun(mcp);
    listing.await;
    let tools = told.recv().await.unwrap().unwrap();
    let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
    let call = tokio::spawn(add.0.call(json!({})));
    asked(&mut seen, "GET").await;
    asked(&mut seen, "tools/call").await;
    drop(tools);
    assert_eq!(call.await.unwrap(), Err("the MCP server's session is over".into()));
    // The server is notified, and need not respond.
    asked(&mut seen, "DELETE").await;
    gone("with the call", &mut seen).await;
    assert!(told.recv().await.is_none(), "the end of a call is no failure of its servers");
}
