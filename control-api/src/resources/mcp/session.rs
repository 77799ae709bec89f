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

use super::budget::{Budget, BudgetedTransport, Limit};
use super::http::BudgetedHttpClient;
use super::legacy_sse::LegacySseTransport;
use super::tool_names::ToolNames;
use crate::resources::secret_headers::SecretHeaders;
use crate::state::AppState;
use crate::store;
use crate::store::conversation::Row;
use crate::store::json_record::{self, Table};
use crate::store::mcp::{McpDocument, TransportType};
use crate::store::secrets;

/// Maximum time for listing a server's tools. The call does not wait for it.
pub(super) const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of a tool call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of tools of one server.
pub(super) const MAX_TOOLS: usize = 64;
/// Maximum size of a result, bytes.
const MAX_RESULT_BYTES: usize = 256 << 10;

type Session = RunningService<RoleClient, ()>;

/// A tool of a server, called within the call's session.
struct McpTool {
    session: Arc<Session>,
    budget: Budget,
    /// The session is closed when the last of its tools is dropped, even while requests are in
    /// progress.
    _close_guard: Arc<DropGuard>,
    name: String,
}

impl RemoteTool for McpTool {
    fn call(&self, arguments: Value) -> BoxFuture<'static, Result<Value, String>> {
        let (session, budget, name) =
            (Arc::clone(&self.session), self.budget.clone(), self.name.clone());
        Box::pin(async move {
            let Value::Object(arguments) = arguments else {
                return Err("the arguments are not an object".into());
            };
            let mut params = CallToolRequestParams::new(name);
            params.arguments = Some(arguments);
            let pending_call = tokio::time::timeout(CALL_TIMEOUT, session.call_tool(params));
            match budget.run_until_closed(pending_call).await {
                Err(over) => Err(over.to_string()),
                Ok(Err(_)) => {
                    budget.exceed(Limit::CallTimeout);
                    Err("the MCP server took too long".into())
                }
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Ok(Ok(result))) => result_to_json(&result),
            }
        })
    }

    fn is_open(&self) -> bool {
        !self.budget.is_closed()
    }
}

/// Converts a result to what the model receives: an object.
fn result_to_json(result: &CallToolResult) -> Result<Value, String> {
    let blocks = json!(result.content);
    let text = blocks.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let mut text = text.collect::<Vec<_>>().join("\n");
    let truncated = text.len() > MAX_RESULT_BYTES;
    if truncated {
        text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
    }
    if result.is_error == Some(true) {
        return Err(if text.is_empty() { "the tool failed".into() } else { text });
    }
    if let Some(object @ Value::Object(_)) = &result.structured_content
        && object.to_string().len() <= MAX_RESULT_BYTES
    {
        return Ok(object.clone());
    }
    Ok(match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) if !truncated => object,
        _ if truncated => {
            json!({"result": text, "truncated": true, "note": "truncated after 256 KiB"})
        }
        _ => json!({ "result": text }),
    })
}

/// Opens a session with a server, over a transport that its configuration's `type` permits.
async fn open_session(
    client: &egress::Client,
    budget: &Budget,
    mcp: &ServerConfig,
) -> Result<Session, String> {
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
            Some((
                HeaderName::try_from(name.as_str()).ok()?,
                HeaderValue::try_from(value.as_str()).ok()?,
            ))
        })
        .collect();
    let mut first_error = String::new();
    if mcp.kind != TransportType::LegacySse {
        let http = BudgetedHttpClient::new(client.clone(), budget.clone());
        let config = StreamableHttpClientTransportConfig::with_uri(mcp.url.as_str())
            .custom_headers(headers.clone());
        let transport = StreamableHttpClientTransport::with_client(http.clone(), config);
        match ().serve(BudgetedTransport::new(transport, budget)).await {
            Ok(session) => return Ok(session),
            Err(error) => first_error = error.to_string(),
        }
        if mcp.kind == TransportType::StreamableHttp || !http.is_legacy_server() {
            return Err(first_error);
        }
    }
    let legacy = match LegacySseTransport::open(client, budget.clone(), &mcp.url, headers).await {
        Ok(legacy) => {
            ().serve(BudgetedTransport::new(legacy, budget))
                .await
                .map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    legacy.map_err(|error| {
        if first_error.is_empty() {
            error
        } else {
            format!("{first_error}; with the legacy SSE transport: {error}")
        }
    })
}

/// Lists all tools of a server, page by page.
async fn list_all_tools(
    session: &Session,
    budget: &Budget,
) -> Result<Vec<rmcp::model::Tool>, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    loop {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = session.list_tools(Some(page)).await.map_err(|e| e.to_string())?;
        tools.extend(page.tools);
        if tools.len() > MAX_TOOLS {
            budget.exceed(Limit::Tools);
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
async fn load_tools(
    client: &egress::Client,
    budget: &Budget,
    mcp: &ServerConfig,
) -> Result<Vec<Tool>, String> {
    let close_guard = Arc::new(budget.close_on_drop());
    let work = async {
        let session = Arc::new(open_session(client, budget, mcp).await?);
        let tool = |tool: rmcp::model::Tool| {
            let name = tool.name.into_owned();
            let mcp_tool = McpTool {
                session: Arc::clone(&session),
                budget: budget.clone(),
                _close_guard: Arc::clone(&close_guard),
                name: name.clone(),
            };
            Tool {
                name: sanitize_name(&name),
                description: tool.description.unwrap_or_default().into_owned(),
                parameters: Value::Object((*tool.input_schema).clone()),
                backend: ToolBackend::Remote(RemoteToolHandle(Arc::new(mcp_tool))),
            }
        };
        Ok(list_all_tools(&session, budget).await?.into_iter().map(tool).collect())
    };
    tokio::time::timeout(LISTING_TIMEOUT, work).await.unwrap_or_else(|_| {
        budget.exceed(Limit::ListingTimeout);
        Err(Limit::ListingTimeout.to_string())
    })
}

/// Makes a name valid for language models: letters, digits, `_` and `-`, at most 64 characters.
fn sanitize_name(name: &str) -> String {
    let sanitize_char =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.chars().take(64).map(sanitize_char).collect()
}

/// The agent's MCP servers; `None` if it has none. `own_tools` are the names of the call's other
/// tools.
pub(crate) async fn load_servers(
    state: &AppState,
    row: &Row,
    ids: &[String],
    own_tools: Vec<String>,
) -> store::Result<Option<Arc<dyn ToolServers>>> {
    let rows = state.store.documents(Table::Mcp, &row.workspace, ids).await?;
    let stored = ids.iter().filter_map(|id| rows.iter().find(|row| row.id == *id));
    let servers = stored.map(|row| load_config(state, row)).collect::<store::Result<Vec<_>>>()?;
    if servers.is_empty() {
        return Ok(None);
    }
    let (client, conversation) = (state.http_client.clone(), row.id.clone());
    Ok(Some(Arc::new(McpServers {
        client,
        conversation,
        own_tools,
        servers: servers.into_iter().map(Arc::new).collect(),
    })))
}

/// MCP servers of a call.
struct McpServers {
    client: egress::Client,
    conversation: String,
    /// Names of the call's other tools.
    own_tools: Vec<String>,
    servers: Vec<Arc<ServerConfig>>,
}

impl ToolServers for McpServers {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let (client, servers) = (self.client.clone(), self.servers.clone());
        let tool_names = ToolNames::new(&self.own_tools);
        let call: Arc<str> = self.conversation.as_str().into();
        let tell: Arc<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync> = tell.into();
        Box::pin(async move {
            let (client, call, tell, tool_names) = (&client, &call, &tell, &tool_names);
            let names: Vec<&str> = servers.iter().map(|mcp| mcp.name.as_str()).collect();
            let asked = servers.iter().enumerate().map(|(server, mcp)| async move {
                let budget = Budget::default();
                match load_tools(client, &budget, mcp).await {
                    Ok(tools) => {
                        tell(Ok(tool_names.select(server, tools)));
                        let (mcp, call, tell) =
                            (Arc::clone(mcp), Arc::clone(call), Arc::clone(tell));
                        budget.on_limit(move |limit| {
                            tell(Err(report_unavailable(&call, &mcp, Some(limit), &limit)))
                        });
                    }
                    Err(why) => {
                        tell(Err(report_unavailable(call, mcp, budget.exceeded_limit(), &why)))
                    }
                }
            });
            join_all(asked).await;
            tool_names.warnings(&names).into_iter().for_each(|warning| tell(Err(warning)));
        })
    }
}

/// Logs why a server's tools are not available, or no longer. Returns the sentence for the call's
/// record.
fn report_unavailable(
    conversation: &str,
    mcp: &ServerConfig,
    limit: Option<Limit>,
    why: &dyn fmt::Display,
) -> String {
    tracing::warn!(
        %conversation,
        server = %mcp.name,
        reason = %why,
        "the tools of an MCP server are not available"
    );
    // The server's own error text is only for the operator's log.
    let why = limit.map_or_else(|| "the request failed".into(), |limit| limit.to_string());
    format!("The tools of the MCP server {:?} are not available: {why}.", mcp.name)
}

struct ServerConfig {
    name: String,
    /// One of [`super::TRANSPORT_TYPES`].
    kind: TransportType,
    url: String,
    headers: SecretHeaders,
}

fn load_config(state: &AppState, row: &json_record::Row) -> store::Result<ServerConfig> {
    let mcp: McpDocument = json_record::parse_document(&row.document)?;
    Ok(ServerConfig {
        name: mcp.name,
        kind: mcp.kind,
        url: mcp.request_config.url,
        headers: secrets::open(&state.vault, &row.id, &row.secrets)?,
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
        let convert = |content: Value| result_to_json(&result(content));
        assert_eq!(convert(json!({"content": text("42")})), Ok(json!({"result": "42"})));
        assert_eq!(convert(json!({"content": text("{\"a\": 1}")})), Ok(json!({"a": 1})));
        assert_eq!(
            convert(json!({"content": text("x"), "structuredContent": {"b": 2}})),
            Ok(json!({"b": 2}))
        );
        assert_eq!(
            convert(json!({"content": text("no such file"), "isError": true})),
            Err("no such file".into())
        );
        let long = convert(json!({"content": text(&"x".repeat(MAX_RESULT_BYTES + 1))})).unwrap();
        assert_eq!(
            (long["result"].as_str().map(str::len), &long["truncated"]),
            (Some(MAX_RESULT_BYTES), &json!(true))
        );
    }

    /// A server over streamable HTTP, and over the legacy transport up to its stream. It does not
    /// respond to the method `mute`, and notifies when it receives it. Returns its configuration,
    /// whose URL selects the transport.
    async fn serve(kind: &'static str, silent_method: &'static str) -> (ServerConfig, Arc<Notify>) {
        let request_received = Arc::new(Notify::new());
        let silent = {
            let request_received = Arc::clone(&request_received);
            async move || -> Response {
                request_received.notify_one();
                std::future::pending().await
            }
        };
        let open = silent.clone();
        let answer = async move |axum::Json(message): axum::Json<Value>| {
            let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
            let method = message["method"].as_str().unwrap();
            if method == silent_method {
                return silent().await;
            }
            let result = match method {
                "initialize" => json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "test", "version": "1"},
                }),
                "tools/list" => {
                    json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]})
                }
                _ => json!({"content": [{"type": "text", "text": "done"}]}),
            };
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/{kind}", listener.local_addr().unwrap());
        let router = Router::new().route("/shttp", post(answer)).route("/sse", get(open));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let name = "T".to_owned();
        (
            ServerConfig {
                name,
                kind: serde_json::from_value(kind.into()).unwrap(),
                url,
                headers: SecretHeaders::new(),
            },
            request_received,
        )
    }

    fn client() -> egress::Client {
        egress::Client::new(egress::Policy { allow_private: true }).unwrap()
    }

    /// Runs `work`, whose request gets no response, and checks that it times out after `after`. The
    /// clock is paused after the request and then jumps from timer to timer: only timeouts are left
    /// to wait for.
    async fn assert_times_out<T>(
        after: Duration,
        request_received: &Notify,
        work: impl Future<Output = T>,
    ) -> T {
        let started = Instant::now();
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            _ = &mut work => panic!("it ended before the request to the server"),
            () = request_received.notified() => pause(),
        }
        let silent = Instant::now();
        let output = tokio::time::timeout(3 * after, work).await.expect("the timeout ends it");
        // The wait began between the two; the clock has a resolution of 1 ms.
        let (min_elapsed, max_elapsed) = (silent.elapsed(), started.elapsed());
        resume();
        assert!(
            min_elapsed <= after + Duration::from_millis(2) && max_elapsed >= after,
            "{min_elapsed:?} to {max_elapsed:?}"
        );
        output
    }

    #[tokio::test]
    async fn a_server_that_stays_silent_is_left_out_after_ten_seconds() {
        for (kind, silent_method) in
            [("shttp", "initialize"), ("shttp", "tools/list"), ("sse", "initialize")]
        {
            let (mcp, request_received) = serve(kind, silent_method).await;
            let servers = McpServers {
                client: client(),
                conversation: "c".into(),
                own_tools: Vec::new(),
                servers: vec![Arc::new(mcp)],
            };
            let updates = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&updates);
            let listing =
                servers.list_tools(Box::new(move |update| sink.lock().unwrap().push(update)));
            assert_times_out(Duration::from_secs(10), &request_received, listing).await;
            let why = "The tools of the MCP server \"T\" are not available: it did not list its \
                tools within 10 s.";
            assert_eq!(*updates.lock().unwrap(), [Err(why.to_owned())], "{kind}, {silent_method}");
        }
    }

    #[tokio::test]
    async fn a_tool_that_never_answers_is_given_up_after_twenty_seconds() {
        let (mcp, request_received) = serve("shttp", "tools/call").await;
        let tools = load_tools(&client(), &Budget::default(), &mcp).await.unwrap();
        let [Tool { backend: ToolBackend::Remote(add), .. }] = &tools[..] else {
            panic!("{tools:?}")
        };
        let output = assert_times_out(
            Duration::from_secs(20),
            &request_received,
            add.0.call(json!({"a": 1})),
        )
        .await;
        assert_eq!(output, Err("the MCP server took too long".into()));
    }

    #[test]
    fn names_are_made_fit_for_models() {
        assert_eq!(sanitize_name("files/read all"), "files_read_all");
        assert_eq!(sanitize_name(&"x".repeat(80)).len(), 64);
    }
}
