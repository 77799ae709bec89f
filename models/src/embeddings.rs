//! Client for text embeddings of an OpenAI-compatible server (`POST {url}/embeddings`).

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::{Error, ErrorKind};
use egress::Method;

/// Maximum size of a response in bytes: some hundred texts with some thousand numbers each.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Server and model.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Base URL that ends in `/v1`.
    pub url: String,
    /// Name of the model on that server.
    pub model: String,
    /// Bearer token. Secret.
    pub token: Option<String>,
}

impl core::fmt::Debug for Config {
    /// Omits the token and the URL, whose path and query may be secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Config").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Client of an embeddings server.
#[derive(Clone)]
pub struct EmbeddingClient {
    config: Config,
    client: egress::Client,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<EmbeddingItem>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: usize,
    embedding: Vec<f32>,
}

impl EmbeddingClient {
    /// A client of the server that the operator configured, which may therefore have a private
    /// address.
    #[must_use]
    pub fn new(config: Config, client: &egress::Client) -> Self {
        Self { config, client: client.trusted() }
    }

    /// Name of the model. Vectors of different models cannot be compared.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.config.model
    }

    /// Returns one vector per text, all of the same length.
    ///
    /// # Errors
    /// The server rejected the request, failed, exceeded `timeout`, or sent a response that does
    /// not match the request.
    pub async fn embed(&self, texts: &[String], timeout: Duration) -> Result<Vec<Vec<f32>>, Error> {
        let url = format!("{}/embeddings", self.config.url.trim_end_matches('/'));
        let mut request = egress::Request::new(Method::POST, &url)?
            .timeout(Some(timeout))
            .limit(MAX_RESPONSE_BYTES);
        if let Some(token) = &self.config.token {
            request = request.bearer(token)?;
        }
        let body = json!({"model": self.config.model, "input": texts, "encoding_format": "float"});
        let response = self.client.send(request.json(body.to_string())).await?;
        let status = response.status();
        if !response.is_success() {
            // 429 and 5xx are transient; other statuses mean that this request is at fault.
            let kind = if status == 429 || status >= 500 {
                ErrorKind::Failed
            } else {
                ErrorKind::Rejected
            };
            return Err(Error::new(
                kind,
                format!("the embeddings server responded with status {status}"),
            ));
        }
        let body = response.body().await?;
        let invalid_response = |why: &str| {
            Error::new(ErrorKind::Failed, format!("the embeddings server returned {why}"))
        };
        let answer: EmbeddingsResponse = serde_json::from_slice(&body.bytes)
            .map_err(|_| invalid_response("no list of vectors"))?;
        let mut vectors = vec![Vec::new(); texts.len()];
        for EmbeddingItem { index, embedding } in answer.data {
            *vectors.get_mut(index).ok_or_else(|| invalid_response("more vectors than texts"))? =
                embedding;
        }
        let length = vectors.first().map_or(0, Vec::len);
        if vectors
            .iter()
            .any(|v| v.is_empty() || v.len() != length || v.iter().any(|x| !x.is_finite()))
        {
            return Err(invalid_response("vectors that do not match the texts"));
        }
        Ok(vectors)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Answers one request with `status` and `body`; the thread returns the request.
    fn serve_once(status: u16, body: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            let mut part = [0; 4096];
            while !request.ends_with("}") {
                let count = stream.read(&mut part).unwrap();
                request.push_str(std::str::from_utf8(&part[..count]).unwrap());
            }
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            request
        });
        (url, thread)
    }

    async fn embed_through(
        status: u16,
        body: &'static str,
    ) -> (Result<Vec<Vec<f32>>, Error>, String) {
        let (url, thread) = serve_once(status, body);
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let config = Config { url, model: "m".into(), token: Some("sesame".into()) };
        let texts = ["one".to_owned(), "two".to_owned()];
        let vectors =
            EmbeddingClient::new(config, &client).embed(&texts, Duration::from_secs(10)).await;
        (vectors, thread.join().unwrap())
    }

    #[tokio::test]
    async fn each_text_gets_its_own_vector_in_whatever_order_they_come() {
        let (vectors, request) = embed_through(
            200,
            r#"{"data": [{"index": 1, "embedding": [0, 2.5]}, {"index": 0, "embedding": [1, 0]}]}"#,
        )
        .await;
        assert_eq!(vectors.unwrap(), [[1.0, 0.0], [0.0, 2.5]]);
        assert!(request.starts_with("POST /v1/embeddings HTTP/1.1"), "{request}");
        assert!(
            request.contains("Bearer sesame") && request.contains(r#""input":["one","two"]"#),
            "{request}"
        );
    }

    #[tokio::test]
    async fn what_does_not_fit_is_refused() {
        for (status, body, kind) in [
            (200, r#"{"data": [{"index": 0, "embedding": [1]}]}"#, ErrorKind::Failed),
            (
                200,
                r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}"#,
                ErrorKind::Failed,
            ),
            (200, r#"{"data": [{"index": 2, "embedding": [1]}]}"#, ErrorKind::Failed),
            (200, "no JSON", ErrorKind::Failed),
            (400, "{}", ErrorKind::Rejected),
            (503, "{}", ErrorKind::Failed),
        ] {
            let (vectors, _) = embed_through(status, body).await;
            assert_eq!(vectors.unwrap_err().kind(), kind, "{status} {body}");
        }
    }

    #[tokio::test]
    async fn not_even_the_operator_s_own_configuration_reaches_a_metadata_service() {
        let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
        for url in ["http://169.254.169.254/v1", "http://[fd00:ec2::254]/v1"] {
            let config = Config { url: url.into(), model: "m".into(), token: None };
            let result = EmbeddingClient::new(config, &client)
                .embed(&["x".into()], Duration::from_secs(10))
                .await;
            assert_eq!(result.unwrap_err().to_string(), "refused address", "{url}");
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_has_its_time_and_no_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let config = Config { url, model: "m".into(), token: None };
        let result = EmbeddingClient::new(config, &client)
            .embed(&["x".into()], Duration::from_millis(50))
            .await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Timeout);
    }
}
