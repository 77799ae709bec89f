//! MCP tool servers in a call. The test's own small server speaks the protocol over streamable
//! HTTP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use engine_api::{Tool, ToolBackend};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{TempFolder, TestServer};

#[derive(Default)]
struct FakeToolServer {
    /// Authorization headers received.
    authorizations: Mutex<Vec<String>>,
    /// Whether responses are event streams.
    answers_as_stream: bool,
}

async fn handle_message(
    State(tools): State<Arc<FakeToolServer>>,
    headers: HeaderMap,
    axum::Json(message): axum::Json<Value>,
) -> Response {
    let key = headers.get("authorization").map(|v| v.to_str().unwrap().to_owned());
    tools.authorizations.lock().unwrap().extend(key);
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }),
        "tools/list" => json!({"tools": [
            {
                "name": "add",
                "description": "Adds two numbers",
                "inputSchema": {
                    "type": "object",
                    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                },
            },
            {"name": "fail", "description": "Fails", "inputSchema": {"type": "object"}},
        ]}),
        "tools/call" if message["params"]["name"] == "add" => {
            let number = |name: &str| message["params"]["arguments"][name].as_i64().unwrap();
            json!({"content": [{"type": "text", "text": (number("a") + number("b")).to_string()}]})
        }
        _ => json!({"content": [{"type": "text", "text": "out of order"}], "isError": true}),
    };
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
    if tools.answers_as_stream {
        ([("content-type", "text/event-stream")], format!("event: message\ndata: {answer}\n\n"))
            .into_response()
    } else {
        axum::Json(answer).into_response()
    }
}

async fn start_tool_server(answers_as_stream: bool) -> (String, Arc<FakeToolServer>) {
    let tools = Arc::new(FakeToolServer { answers_as_stream, ..FakeToolServer::default() });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().route("/mcp", post(handle_message)).with_state(Arc::clone(&tools));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, tools)
}

/// The tools and the warnings of a call of an agent with these MCP servers.
async fn offered_tools(server: &TestServer, urls: &[&str]) -> (Vec<Tool>, Vec<String>) {
    let mut ids = Vec::new();
    for url in urls {
        let body = json!({
            "name": "T",
            "request_config": {"url": url, "headers": {"Authorization": "Bearer sesame"}},
        });
        ids.push(server.post("/v1/ext/mcp", body).await.expect_status(200)["id"].clone());
    }
    let agent = server.create_agent(json!({ "mcp": ids })).await;
    let (conversation, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let call = Arc::clone(&server.engine.offers.lock().unwrap().last().unwrap().config);
    let collected = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let collect = Arc::clone(&collected);
    let collect = move |collected| match collected {
        Ok(tools) => collect.lock().unwrap().0.extend::<Vec<Tool>>(tools),
        Err(warning) => collect.lock().unwrap().1.push(warning),
    };
    call.tool_servers.as_ref().expect("the agent has servers").list_tools(Box::new(collect)).await;
    std::mem::take(&mut *collected.lock().unwrap())
}

async fn run_tool(tool: &Tool, arguments: Value) -> Result<Value, String> {
    let ToolBackend::Remote(remote) = &tool.backend else { panic!("{tool:?}") };
    remote.0.call(arguments).await
}

#[tokio::test]
async fn the_tools_of_a_server_are_listed_and_run_in_one_session() {
    for streams in [false, true] {
        let folder = TempFolder::new();
        let server = TestServer::start(&folder).await;
        let (url, seen) = start_tool_server(streams).await;
        let (tools, warnings) = offered_tools(&server, &[&url]).await;
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(
            tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
            ["add", "fail"],
            "streams: {streams}"
        );
        assert_eq!(
            (tools[0].description.as_str(), &tools[0].parameters["properties"]["a"]),
            ("Adds two numbers", &json!({"type": "number"}))
        );
        assert_eq!(
            run_tool(&tools[0], json!({"a": 40, "b": 2})).await,
            Ok(json!({"result": "42"}))
        );
        assert_eq!(run_tool(&tools[1], json!({})).await, Err("out of order".into()));
        assert!(seen.authorizations.lock().unwrap().iter().all(|key| key == "Bearer sesame"));
    }
}

#[tokio::test]
async fn a_server_that_fails_costs_its_own_tools_only() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (url, _) = start_tool_server(false).await;
    let (tools, warnings) = offered_tools(&server, &["http://127.0.0.1:1/mcp", &url]).await;
    assert_eq!(tools.len(), 2);
    assert_eq!(
        warnings,
        ["The tools of the MCP server \"T\" are not available: the request failed."]
    );
}

#[tokio::test]
async fn servers_with_tools_of_the_same_names_are_named_in_a_warning() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let ((first, _), (second, _)) = (start_tool_server(false).await, start_tool_server(true).await);
    let (tools, warnings) = offered_tools(&server, &[&first, &second]).await;
    // Whoever answers last: if it is the first server, its tools replace the others.
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names == ["add", "fail"] || names == ["add", "fail", "add", "fail"], "{names:?}");
    assert_eq!(
        warnings,
        ["The MCP servers \"T\" and \"T\" have tools with the same name (add, fail): those of \
          \"T\" are used, because it is attached first."]
    );
}

#[tokio::test]
async fn an_older_mcp_server_cannot_redirect_messages_to_another_host() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (elsewhere, seen) = start_tool_server(false).await;
    let says = format!("event: endpoint\ndata: {elsewhere}\n\n");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    // The server rejects POST, so the client falls back to the older HTTP+SSE transport.
    let stream = move || async move { ([("content-type", "text/event-stream")], says) };
    let router = Router::new().route("/sse", get(stream));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let (tools, warnings) = offered_tools(&server, &[&url]).await;
    assert_eq!((tools.len(), warnings.len()), (0, 1));
    assert!(seen.authorizations.lock().unwrap().is_empty(), "the headers went to another server");
}

#[tokio::test]
async fn a_server_at_a_private_address_is_asked_only_where_the_operator_allows_it() {
    let folder = TempFolder::new();
    let server =
        TestServer::start_with(&folder.0, |config| config.allow_private_targets = Some(false))
            .await;
    let (url, seen) = start_tool_server(false).await;
    let (tools, warnings) = offered_tools(&server, &[&url]).await;
    assert_eq!((tools.len(), warnings.len()), (0, 1));
    assert!(seen.authorizations.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_offer_does_not_wait_for_a_silent_mcp_server() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (url, _) = start_tool_server(false).await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut ids = Vec::new();
    for url in [format!("http://{}/mcp", silent.local_addr().unwrap()), url] {
        let body = json!({"name": "T", "request_config": {"url": url}});
        ids.push(server.post("/v1/ext/mcp", body).await.expect_status(200)["id"].clone());
    }
    let agent = server.create_agent(json!({ "mcp": ids })).await;
    let (conversation, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    assert!(
        timeout(Duration::from_millis(50), silent.accept()).await.is_err(),
        "no server gets a request before the call"
    );
    let call = Arc::clone(&server.engine.offers.lock().unwrap().last().unwrap().config);
    let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
    let servers = call.tool_servers.as_ref().expect("the agent has servers");
    let listing =
        tokio::spawn(servers.list_tools(Box::new(move |result| drop(sender.send(result)))));
    let first = results.recv().await.unwrap();
    assert_eq!(first.map(|tools| tools.len()), Ok(2), "the silent one is still pending");
    assert!(!listing.is_finished());
    listing.abort();
}
