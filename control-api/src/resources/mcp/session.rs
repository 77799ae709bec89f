//! The MCP servers of a call. Their tools are listed after the call has started, in parallel with
//! its greeting. Each server has a session of its own that lasts as long as the call. A server that
//! is unreachable or exceeds the limits of its session only loses its tools.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use engine_api::{BoxFuture, RemoteTool, RemoteToolHandle, Tool, ToolBackend, ToolServers};
use futures_util::future::join_all;
use rmcp::model::{CallToolRequestParams, CallToolResult, PaginatedRequestParams};
use rmcp::service::{RoleClient, RunningService, ServiceExt as _};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::budget::{Budget, Limit, Within};
use super::http::Http;
use super::legacy_sse::Older;
use crate::resources::document_resource;
use crate::resources::secret_headers::Headers;
use crate::state::AppState;
use crate::store;
use crate::store::conversation::Row;
use crate::store::document::{self, Table};
use crate::store::secrets;

/// Maximum time for listing a server's tools. The call does not wait for it.
pub(super) const LISTING: Duration = Duration::from_secs(10);
/// Maximum time of a tool call.
pub(super) const CALL: Duration = Duration::from_secs(20);
/// Maximum number of tools of one server.
pub(super) const TOOLS: usize = 64;
/// Maximum size of a result, bytes.
const RESULT: usize = 256 << 10;

type Session = RunningService<RoleClient, ()>;

/// A tool of a server, called within the call's session.
struct Served {
    session: Arc<Session>,
    budget: Budget,
    /// The session is closed when the last of its tools is dropped, even while requests are in
    /// progress.
    _lasts: Arc<DropGuard>,
    name: String,
}

impl RemoteTool for Served {
    fn call(&self, arguments: Value) -> BoxFuture<'static, Result<Value, String>> {
        let (session, budget, name) = (Arc::clone(&self.session), self.budget.clone(), self.name.clone());
        Box::pin(async move {
            let Value::Object(arguments) = arguments else {
                return Err("the arguments are no object".into());
            };
            let mut params = CallToolRequestParams::new(name);
            params.arguments = Some(arguments);
            let asked = tokio::time::timeout(CALL, session.call_tool(params));
            match budget.within(asked).await {
                Err(over) => Err(over.to_string()),
                Ok(Err(_)) => {
                    budget.pass(Limit::Call);
                    Err("the MCP server took too long".into())
                }
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Ok(Ok(result))) => told(&result),
            }
        })
    }

    fn is_open(&self) -> bool {
        !self.budget.is_closed()
    }
}

/// Converts a result to what the model receives: an object.
fn told(result: &CallToolResult) -> Result<Value, String> {
    let blocks = json!(result.content);
    let words = blocks.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let mut words = words.collect::<Vec<_>>().join("\n");
    let cut = words.len() > RESULT;
    if cut {
        words.truncate(words.floor_char_boundary(RESULT));
    }
    if result.is_error == Some(true) {
        return Err(if words.is_empty() { "the tool failed".into() } else { words });
    }
    if let Some(object @ Value::Object(_)) = &result.structured_content
        && object.to_string().len() <= RESULT
    {
        return Ok(object.clone());
    }
    Ok(match serde_json::from_str(&words) {
        Ok(object @ Value::Object(_)) if !cut => object,
        _ if cut => json!({"result": words, "truncated": true, "note": "cut after 256 KiB"}),
        _ => json!({ "result": words }),
    })
}

/// Opens a session with a server, over a transport that its configuration's `type` permits.
async fn opened(client: &egress::Client, budget: &Budget, mcp: &Configuration) -> Result<Session, String> {
    // The session has its own connections, so that none stays open after its end. The client loads
    // the certificates again, which blocks; therefore it is not created on an async thread.
    let client = client.clone();
    let client = tokio::task::spawn_blocking(move || client.with_own_connections())
        .await
        .map_err(|e| e.to_string())?;
    let client = client.map_err(|e| e.to_string())?;
    let headers: HashMap<HeaderName, HeaderValue> = mcp
        .headers
        .iter()
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::try_from(value.as_str()).ok()?))
        })
        .collect();
    let mut why = String::new();
    if mcp.kind != "sse" {
        let http = Http::new(client.clone(), budget.clone());
        let config =
            StreamableHttpClientTransportConfig::with_uri(mcp.url.as_str()).custom_headers(headers.clone());
        let transport = StreamableHttpClientTransport::with_client(http.clone(), config);
        match ().serve(Within::new(transport, budget)).await {
            Ok(session) => return Ok(session),
            Err(error) => why = error.to_string(),
        }
        if mcp.kind == "shttp" || !http.is_foreign() {
            return Err(why);
        }
    }
    let older = match Older::open(client, budget.clone(), &mcp.url, headers).await {
        Ok(older) => ().serve(Within::new(older, budget)).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    older.map_err(|error| {
        if why.is_empty() { error } else { format!("{why}; with the legacy SSE transport: {error}") }
    })
}

/// Lists all tools of a server, page by page.
async fn pages(session: &Session, budget: &Budget) -> Result<Vec<rmcp::model::Tool>, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    loop {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = session.list_tools(Some(page)).await.map_err(|e| e.to_string())?;
        tools.extend(page.tools);
        if tools.len() > TOOLS {
            budget.pass(Limit::Tools);
            return Err(Limit::Tools.to_string());
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
}

/// Opens a session for one configuration and lists its tools, or returns why there are none. After
/// an error, or if this future is dropped, nothing of the session is left.
async fn listed(client: &egress::Client, budget: &Budget, mcp: &Configuration) -> Result<Vec<Tool>, String> {
    let lasts = Arc::new(budget.guard());
    let work = async {
        let session = Arc::new(opened(client, budget, mcp).await?);
        let tool = |tool: rmcp::model::Tool| {
            let name = tool.name.into_owned();
            let served = Served {
                session: Arc::clone(&session),
                budget: budget.clone(),
                _lasts: Arc::clone(&lasts),
                name: name.clone(),
            };
            Tool {
                name: plain(&name),
                description: tool.description.unwrap_or_default().into_owned(),
                parameters: Value::Object((*tool.input_schema).clone()),
                backend: ToolBackend::Remote(RemoteToolHandle(Arc::new(served))),
            }
        };
        Ok(pages(&session, budget).await?.into_iter().map(tool).collect())
    };
    tokio::time::timeout(LISTING, work).await.unwrap_or_else(|_| {
        budget.pass(Limit::Listing);
        Err(Limit::Listing.to_string())
    })
}

/// Makes a name valid for language models: letters, digits, `_` and `-`, at most 64 characters.
fn plain(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.chars().take(64).map(keep).collect()
}

/// The agent's MCP servers; `None` if it has none.
pub(crate) async fn servers(
    shared: &AppState,
    row: &Row,
    agent: &Value,
) -> store::Result<Option<Arc<dyn ToolServers>>> {
    let ids = document::ids(agent, "mcp");
    let rows = shared.store.documents(Table::Mcp, &row.workspace, &ids).await?;
    let stored = ids.iter().filter_map(|id| rows.iter().find(|row| row.id == *id));
    let servers = stored.map(|row| configuration(shared, row)).collect::<store::Result<Vec<_>>>()?;
    if servers.is_empty() {
        return Ok(None);
    }
    let (client, conversation) = (shared.net.clone(), row.id.clone());
    Ok(Some(Arc::new(Servers { client, conversation, servers: servers.into_iter().map(Arc::new).collect() })))
}

/// MCP servers of a call.
struct Servers {
    client: egress::Client,
    conversation: String,
    servers: Vec<Arc<Configuration>>,
}

impl ToolServers for Servers {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let (client, servers) = (self.client.clone(), self.servers.clone());
        let call: Arc<str> = self.conversation.as_str().into();
        let tell: Arc<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync> = tell.into();
        Box::pin(async move {
            let (client, call, tell) = (&client, &call, &tell);
            let asked = servers.iter().map(|mcp| async move {
                let budget = Budget::default();
                match listed(client, &budget, mcp).await {
                    Ok(tools) => {
                        tell(Ok(tools));
                        let (mcp, call, tell) = (Arc::clone(mcp), Arc::clone(call), Arc::clone(tell));
                        budget.on_limit(move |limit| tell(Err(left_out(&call, &mcp, Some(limit), &limit))));
                    }
                    Err(why) => tell(Err(left_out(call, mcp, budget.passed(), &why))),
                }
            });
            join_all(asked).await;
        })
    }
}

/// Logs why a server's tools are not available, or no longer. Returns the sentence for the call's
/// record.
fn left_out(conversation: &str, mcp: &Configuration, limit: Option<Limit>, why: &dyn fmt::Display) -> String {
    tracing::warn!(%conversation, server = %mcp.name, reason = %why, "the tools of an MCP server are not available");
    // The server's own error text is only for the operator's log.
    let why = limit.map_or_else(|| "it could not be asked".into(), |limit| limit.to_string());
    format!("The tools of the MCP server {:?} are left out: {why}.", mcp.name)
}

struct Configuration {
    name: String,
    /// One of [`super::TRANSPORT_TYPES`].
    kind: String,
    url: String,
    headers: Headers,
}

fn configuration(shared: &AppState, row: &document::Row) -> store::Result<Configuration> {
    let mcp = document_resource::shown(row)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Configuration {
        name: text(&mcp["name"]),
        kind: text(&mcp["type"]),
        url: text(&mcp["request_config"]["url"]),
        headers: secrets::open(&shared.vault, &row.id, &row.secrets)?,
    })
}

#[cfg(test)]
mod hostile_tests;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::{get, post};
    use tokio::sync::Notify;
    use tokio::time::{Instant, pause, resume};

    use super::*;

    fn result(json: Value) -> CallToolResult {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_result_becomes_an_object_and_a_failure_a_reason() {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let told = |content: Value| told(&result(content));
        assert_eq!(told(json!({"content": text("42")})), Ok(json!({"result": "42"})));
        assert_eq!(told(json!({"content": text("{\"a\": 1}")})), Ok(json!({"a": 1})));
        assert_eq!(told(json!({"content": text("x"), "structuredContent": {"b": 2}})), Ok(json!({"b": 2})));
        assert_eq!(
            told(json!({"content": text("no such file"), "isError": true})),
            Err("no such file".into())
        );
        let long = told(json!({"content": text(&"x".repeat(RESULT + 1))})).unwrap();
        assert_eq!((long["result"].as_str().map(str::len), &long["truncated"]), (Some(RESULT), &json!(true)));
    }

    /// A server over streamable HTTP, and over the legacy transport up to its stream. It does not
    /// respond to the method `mute`, and notifies when it receives it. Returns its configuration,
    /// whose URL selects the transport.
    async fn serve(kind: &'static str, mute: &'static str) -> (Configuration, Arc<Notify>) {
        let asked = Arc::new(Notify::new());
        let silent = {
            let asked = Arc::clone(&asked);
            async move || -> Response {
                asked.notify_one();
                std::future::pending().await
            }
        };
        let open = silent.clone();
        let answer = async move |axum::Json(message): axum::Json<Value>| {
            let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
            let method = message["method"].as_str().unwrap();
            if method == mute {
                return silent().await;
            }
            let result = match method {
                "initialize" => json!({
                    "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "test", "version": "1"},
                }),
                "tools/list" => json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
                _ => json!({"content": [{"type": "text", "text": "done"}]}),
            };
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/{kind}", listener.local_addr().unwrap());
        let router = Router::new().route("/shttp", post(answer)).route("/sse", get(open));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let name = "T".to_owned();
        (Configuration { name, kind: kind.into(), url, headers: Headers::new() }, asked)
    }

    fn client() -> egress::Client {
        egress::Client::new(egress::Policy { allow_private: true }).unwrap()
    }

    /// Runs `work`, whose request gets no response, and checks that it times out after `after`. The
    /// clock is paused after the request and then jumps from timer to timer: only timeouts are left
    /// to wait for.
    async fn given_up<T>(after: Duration, asked: &Notify, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            _ = &mut work => panic!("it is over before the server was asked"),
            () = asked.notified() => pause(),
        }
        let silent = Instant::now();
        let told = tokio::time::timeout(3 * after, work).await.expect("it is given up");
        // The wait began between the two; the clock has a resolution of 1 ms.
        let (least, most) = (silent.elapsed(), begun.elapsed());
        resume();
        assert!(least <= after + Duration::from_millis(2) && most >= after, "{least:?} to {most:?}");
        told
    }

    #[tokio::test]
    async fn a_server_that_stays_silent_is_left_out_after_ten_seconds() {
        for (kind, mute) in [("shttp", "initialize"), ("shttp", "tools/list"), ("sse", "initialize")] {
            let (mcp, asked) = serve(kind, mute).await;
            let servers =
                Servers { client: client(), conversation: "c".into(), servers: vec![Arc::new(mcp)] };
            let told = Arc::new(Mutex::new(Vec::new()));
            let keep = Arc::clone(&told);
            let listing = servers.list_tools(Box::new(move |news| keep.lock().unwrap().push(news)));
            given_up(Duration::from_secs(10), &asked, listing).await;
            let why =
                "The tools of the MCP server \"T\" are left out: it did not tell its tools within 10 s.";
            assert_eq!(*told.lock().unwrap(), [Err(why.to_owned())], "{kind}, {mute}");
        }
    }

    #[tokio::test]
    async fn a_tool_that_never_answers_is_given_up_after_twenty_seconds() {
        let (mcp, asked) = serve("shttp", "tools/call").await;
        let tools = listed(&client(), &Budget::default(), &mcp).await.unwrap();
        let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else { panic!("{tools:?}") };
        let told = given_up(Duration::from_secs(20), &asked, add.0.call(json!({"a": 1}))).await;
        assert_eq!(told, Err("the MCP server took too long".into()));
    }

    #[test]
    fn names_are_made_fit_for_models() {
        assert_eq!(plain("files/read all"), "files_read_all");
        assert_eq!(plain(&"x".repeat(80)).len(), 64);
    }
}
