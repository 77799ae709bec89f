use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};

use super::*;

type RecordedRequests = Arc<Mutex<Vec<(Method, String, HeaderMap, String)>>>;

#[derive(Clone)]
struct Server {
    requests: RecordedRequests,
    status: StatusCode,
    body: String,
}

async fn handle(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    server.requests.lock().unwrap().push((
        method,
        uri.to_string(),
        headers,
        String::from_utf8_lossy(&body).into_owned(),
    ));
    (server.status, server.body)
}

async fn serve(status: u16, body: impl Into<String>) -> (RecordedRequests, String) {
    let requests = RecordedRequests::default();
    let server = Server {
        requests: Arc::clone(&requests),
        status: StatusCode::from_u16(status).unwrap(),
        body: body.into(),
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(handle).with_state(server)).await
    });
    (requests, base)
}

fn tool(method: &str, url: String, headers: &[(&str, &str)]) -> Tool {
    let headers =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Tool {
        name: "t".into(),
        description: String::new(),
        parameters: Value::Null,
        backend: ToolBackend::Http { method: method.into(), url, headers },
    }
}

fn client() -> egress::Client {
    egress::Client::new(egress::Policy { allow_private: true }).unwrap()
}

fn url(template: &str, arguments: Value) -> Result<String, String> {
    fill_url_template(template, arguments.as_object().unwrap()).map(|(url, _)| url.to_string())
}

#[tokio::test]
async fn arguments_fill_the_path_and_the_rest_is_the_query() {
    let (requests, base) = serve(200, r#"{"sky":"blue"}"#).await;
    let tool = tool("get", base + "/w/{city}/now?units=si", &[("X-Key", "k1")]);
    let outcome = run(
        &client(),
        &tool,
        json!({"city": "São/Paulo ?#", "days": 2, "tags": ["a", "b&c"], "none": null}),
    )
    .await;
    assert_eq!(outcome, Ok(json!({"sky": "blue"})));
    let requests = requests.lock().unwrap();
    let (method, uri, headers, body) = &requests[0];
    assert_eq!(uri, "/w/S%C3%A3o%2FPaulo%20%3F%23/now?units=si&days=2&tags=a&tags=b%26c");
    assert_eq!(
        (method, headers["x-key"].to_str().unwrap(), body.as_str()),
        (&Method::GET, "k1", "")
    );
}

#[tokio::test]
async fn other_methods_carry_the_rest_as_a_json_body() {
    let (requests, base) = serve(201, "done").await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let outcome = run(
            &client(),
            &tool(method, format!("{base}/o/{{id}}"), &[]),
            json!({"id": 7, "note": "x", "deep": {"a": [1]}}),
        )
        .await;
        assert_eq!(outcome, Ok(json!({"result": "done"})));
    }
    let requests = requests.lock().unwrap();
    for call in &requests[..3] {
        assert_eq!(
            (call.1.as_str(), call.3.as_str(), call.2["content-type"].to_str().unwrap()),
            ("/o/7", r#"{"note":"x","deep":{"a":[1]}}"#, "application/json")
        );
    }
    assert_eq!(
        (requests[3].1.as_str(), requests[3].3.as_str()),
        ("/o/7?note=x&deep=%7B%22a%22%3A%5B1%5D%7D", "")
    );
}

#[test]
fn an_argument_never_reaches_the_host_or_climbs_the_path() {
    assert_eq!(
        url("http://a.example/{x}", json!({"x": "a.b~c_d-e"})).unwrap(),
        "http://a.example/a.b~c_d-e"
    );
    assert_eq!(
        url("http://a.example/{x}", json!({"x": "//evil.example/"})).unwrap(),
        "http://a.example/%2F%2Fevil.example%2F"
    );
    for template in [
        "http://{x}/",
        "http://{x}.example/",
        "http://a.example:8{x}/",
        "http://me:{x}@a.example/",
        "{x}://a.example/",
        "http:\\\\{x}\\a",
    ] {
        for value in ["evil.example", "9", "https"] {
            assert!(url(template, json!({"x": value})).is_err(), "{template} {value}");
        }
    }
    for (template, value) in [
        ("http://a.example/u/{x}", ".."),
        ("http://a.example/u/{x}/me", "."),
        ("http://a.example/u/.{x}/me", "."),
        ("http://a.example/u/{x}", "."),
        ("http://a.example/u/{x}", ""),
    ] {
        assert!(url(template, json!({"x": value})).is_err(), "{template} {value}");
    }
    assert_eq!(
        url("http://a.example/{x}", json!({})).unwrap_err(),
        "the argument \"x\" is missing"
    );
    assert_eq!(
        url("http://a.example/?f={\"a\":1}&g={x}", json!({"x": "&h=1"})).unwrap(),
        "http://a.example/?f={%22a%22:1}&g=%26h%3D1"
    );
}

#[tokio::test]
async fn results_that_are_no_objects_become_one() {
    for (body, outcome) in [
        ("[1,2]", json!([1, 2])),
        ("21.5", json!(21.5)),
        ("", Value::Null),
        ("plain words", json!("plain words")),
    ] {
        let (_, base) = serve(200, body).await;
        assert_eq!(
            run(&client(), &tool("GET", base, &[]), json!({})).await,
            Ok(json!({"result": outcome}))
        );
    }
}

#[tokio::test]
async fn a_long_answer_is_cut_and_says_so() {
    let (_, base) = serve(200, "y".repeat(300 << 10)).await;
    let outcome = run(&client(), &tool("GET", base, &[]), json!({})).await.unwrap();
    assert_eq!(outcome["result"].as_str().unwrap().len(), 256 << 10);
    assert_eq!(
        (&outcome["truncated"], outcome["note"].as_str().unwrap()),
        (&json!(true), "truncated after 256 KiB")
    );
}

#[tokio::test]
async fn failures_are_reasons_without_secrets() {
    let (_, base) = serve(500, "bad key\n Bearer topsecret1 in ?k=hushhush").await;
    let outcome = run(
        &client(),
        &tool("GET", base + "/?k=hushhush", &[("Authorization", "Bearer topsecret1")]),
        json!({}),
    )
    .await;
    assert_eq!(outcome, Err("the tool's server returned 500: bad key *** in ?k=***".into()));
    let (_, base) = serve(302, "").await;
    assert_eq!(
        run(&client(), &tool("GET", base, &[]), json!({})).await,
        Err("the tool's server returned 302".into())
    );
}

/// The clock stops once the server has received the request, then jumps from timer to timer: only
/// the timeout is left.
#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_twenty_seconds() {
    let request_received = Arc::new(tokio::sync::Notify::new());
    let silent_router = Router::new().fallback({
        let request_received = Arc::clone(&request_received);
        async move || {
            request_received.notify_one();
            std::future::pending::<()>().await;
        }
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, silent_router).await });
    let (client, tool) = (client(), tool("POST", base, &[]));

    let started = tokio::time::Instant::now();
    let mut running = std::pin::pin!(run(&client, &tool, json!({"room": "blue"})));
    tokio::select! {
        biased;
        outcome = &mut running => panic!("the outcome was {outcome:?}"),
        () = request_received.notified() => tokio::time::pause(),
    }
    let silent = tokio::time::Instant::now();
    let outcome =
        tokio::time::timeout(3 * TOOL_REQUEST_TIMEOUT, running).await.expect("the timeout ends it");
    assert_eq!(outcome, Err("timeout".into()));
    // The request was sent between the two instants; the clock has a resolution of a millisecond.
    let (min, max) = (silent.elapsed(), started.elapsed());
    let limit = Duration::from_secs(20);
    assert!(min <= limit + Duration::from_millis(2) && max >= limit, "{min:?} to {max:?}");
}

#[tokio::test]
async fn a_forbidden_tool_request_is_rejected_with_a_reason() {
    let strict = egress::Client::new(egress::Policy::default()).unwrap();
    assert_eq!(
        run(&strict, &tool("GET", "http://127.0.0.1/".into(), &[]), json!({})).await,
        Err("refused address".into())
    );
    let header =
        run(&client(), &tool("GET", "http://127.0.0.1/".into(), &[("x", "a\r\nb: c")]), json!({}))
            .await;
    assert_eq!(header, Err("bad header \"x\"".into()));
    assert!(
        run(&client(), &tool("TRACE", "http://127.0.0.1/".into(), &[]), json!({}))
            .await
            .unwrap_err()
            .contains("method")
    );
    assert!(
        run(&client(), &tool("GET", "ftp://127.0.0.1/".into(), &[]), json!({}))
            .await
            .unwrap_err()
            .contains("http")
    );
    assert!(
        run(&client(), &tool("GET", "http://127.0.0.1/".into(), &[]), json!([1]))
            .await
            .unwrap_err()
            .contains("not an object")
    );
    let browser = Tool { backend: ToolBackend::Client, ..tool("GET", String::new(), &[]) };
    assert!(run(&client(), &browser, json!({})).await.is_err());
}
