//! Finds the servers with OpenAI's chat completions that run on this machine.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

/// Time limit of [`local_servers`].
pub const TIME_LIMIT: Duration = Duration::from_millis(200);

/// Maximum size of a list of models in bytes, and of the models that are reported.
const MAX_LIST_BYTES: usize = 256 << 10;
const MAX_MODELS: usize = 100;

/// A port on which a server may listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPort {
    /// Display name of the server.
    pub name: &'static str,
    /// The provider that an agent names to use the server. `custom` needs its URL, too.
    pub provider: &'static str,
    /// Port on 127.0.0.1.
    pub port: u16,
}

/// The standard ports. llama.cpp's own is 8080, which is also the one of this server.
pub const STANDARD_PORTS: [LocalPort; 4] = [
    LocalPort { name: "Ollama", provider: "ollama", port: 11434 },
    LocalPort { name: "LM Studio", provider: "custom", port: 1234 },
    LocalPort { name: "vLLM", provider: "custom", port: 8000 },
    LocalPort { name: "llama.cpp", provider: "custom", port: 8081 },
];

/// A server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// Display name, after its port.
    pub name: &'static str,
    /// The provider that an agent names to use the server. `custom` needs the URL, too.
    pub provider: &'static str,
    /// Base URL, which ends in `/v1`.
    pub url: String,
    /// Names of its models, at most 100.
    pub models: Vec<String>,
}

/// The servers that answer `GET /v1/models` on the standard ports of this machine within
/// [`TIME_LIMIT`], in the order of [`STANDARD_PORTS`].
///
/// Only an operator may call this: it tells what listens on this machine.
pub async fn local_servers(client: &egress::Client) -> Vec<LocalServer> {
    local_servers_on(client, &STANDARD_PORTS, TIME_LIMIT).await
}

/// As [`local_servers`], on these ports within `limit`. The caller leaves out the port on which
/// this server itself listens.
pub async fn local_servers_on(
    client: &egress::Client,
    ports: &[LocalPort],
    limit: Duration,
) -> Vec<LocalServer> {
    // The addresses are ours, so they may be private.
    let client = client.trusted();
    let probes = ports.iter().map(|port| async { timeout(limit, probe(&client, *port)).await });
    join_all(probes).await.into_iter().filter_map(|found| found.ok().flatten()).collect()
}

async fn probe(client: &egress::Client, port: LocalPort) -> Option<LocalServer> {
    let LocalPort { name, provider, port } = port;
    let url = format!("http://127.0.0.1:{port}/v1");
    let request = egress::Request::new(egress::Method::GET, &format!("{url}/models")).ok()?;
    let response = client.send(request.limit(MAX_LIST_BYTES)).await.ok()?;
    if !response.is_success() {
        return None;
    }
    let list: Value = serde_json::from_str(&response.body().await.ok()?.text()).ok()?;
    // Ollama without models has none instead of an empty list.
    let known = list["data"].is_array() || list["object"] == "list";
    let models = list["data"].as_array().into_iter().flatten();
    let models = models.filter_map(|model| model["id"].as_str()).take(MAX_MODELS);
    let models = models.map(str::to_owned).collect();
    known.then_some(LocalServer { name, provider, url, models })
}

#[cfg(test)]
mod tests {
    use axum::response::{IntoResponse as _, Response};
    use serde_json::json;

    use super::*;
    use crate::llm::mock_server::{error_response, serve};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(60);

    /// The port of a server with this response.
    async fn port_of(name: &'static str, response: Response) -> LocalPort {
        let (_, url) = serve(String::new(), vec![response]).await;
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        LocalPort { name, provider: "custom", port }
    }

    fn client() -> egress::Client {
        egress::Client::new(egress::Policy::default()).unwrap()
    }

    #[tokio::test]
    async fn servers_that_list_models_are_found_in_the_order_of_their_ports() {
        let models =
            json!({"object": "list", "data": [{"id": "qwen3"}, {"id": 5}, {"id": "phi4"}]});
        let empty = json!({"object": "list", "data": null});
        let ports = [
            port_of("vLLM", axum::Json(models).into_response()).await,
            port_of("A page", "<html>".into_response()).await,
            port_of("Another API", axum::Json(json!({"status": "ok"})).into_response()).await,
            port_of("Locked", error_response(401, "{\"data\":[]}")).await,
            port_of("Ollama", axum::Json(empty).into_response()).await,
        ];
        let found = local_servers_on(&client(), &ports, LONG).await;
        let expected = |port: LocalPort, models: &[&str]| LocalServer {
            name: port.name,
            provider: port.provider,
            url: format!("http://127.0.0.1:{}/v1", port.port),
            models: models.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(found, [expected(ports[0], &["qwen3", "phi4"]), expected(ports[4], &[])]);
    }

    #[tokio::test]
    async fn silent_and_closed_ports_are_left_out() {
        // A listener that never accepts, and a port that is closed again.
        let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let closed = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = |listener: &tokio::net::TcpListener| listener.local_addr().unwrap().port();
        let ports = [port(&silent), port(&closed)].map(|port| LocalPort {
            name: "vLLM",
            provider: "custom",
            port,
        });
        drop(closed);
        let limit = Duration::from_millis(20);
        assert!(local_servers_on(&client(), &ports, limit).await.is_empty());
    }
}
