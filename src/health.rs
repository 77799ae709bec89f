//! `visavis health`: asks a running server whether it accepts calls, for the health checks of
//! containers, which need no other program.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use egress::{Client, Method, Policy, Request};
use serde_json::Value;
use url::Url;

use crate::cli::ConfigPaths;
use crate::listen::{ListenAddress, local_link};
use crate::{CommandError, load_config};

/// Time for the whole answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of the answer, bytes.
const BODY_LIMIT: usize = 64 << 10;
/// The paths that can be asked.
const READY: &str = "/readyz";
const LIVE: &str = "/healthz";

/// Asks the server at `url`, or the one of the configuration. `live`: only whether it runs.
pub(crate) fn run(
    url: Option<&str>,
    live: bool,
    place: &ConfigPaths,
) -> Result<ExitCode, CommandError> {
    let url = match url {
        Some(url) => url.to_owned(),
        None => address_of(load_config(place)?.server.listen).map_err(CommandError::Usage)?,
    };
    let url = question(&url, if live { LIVE } else { READY }).map_err(CommandError::Usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(ask(&url, TIME_LIMIT)) {
        Ok(answer) => {
            println!("{url}: {answer}");
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => Err(CommandError::Failed(anyhow::anyhow!("{url}: {reason}"))),
    }
}

/// The address at which a server on this machine is reached.
fn address_of(listen: ListenAddress) -> Result<String, String> {
    match listen {
        _ if listen.port() == 0 => Err("server.listen has the port 0, which means any free port: \
             name the address of the server, such as `visavis health http://127.0.0.1:8080`"
            .to_owned()),
        ListenAddress::All(port) => Ok(local_link((Ipv4Addr::LOCALHOST, port).into())),
        ListenAddress::One(address) => Ok(local_link(address)),
    }
}

/// The URL of a question to the server at `address`, which may contain the path already.
fn question(address: &str, path: &str) -> Result<Url, String> {
    let invalid = |reason: &str| format!("\"{address}\" {reason}, such as http://127.0.0.1:8080");
    let mut url = match Url::parse(address) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ => return Err(invalid("is not an http or https URL")),
    };
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("must be the address of a server without a query"));
    }
    let base = url.path().trim_end_matches('/').to_owned();
    if !base.ends_with(READY) && !base.ends_with(LIVE) {
        url.set_path(&(base + path));
    }
    Ok(url)
}

/// What the server answers, or why it does not accept calls.
async fn ask(url: &Url, limit: Duration) -> Result<String, String> {
    // The operator names the address.
    let client = Client::new(Policy { allow_private: true }).map_err(|error| error.to_string())?;
    let request = Request::new(Method::GET, url.as_str()).map_err(|error| error.to_string())?;
    let request = request.timeout(Some(limit)).limit(BODY_LIMIT);
    let failed = |error: egress::Error| match error {
        egress::Error::Timeout => format!("no answer within {} s", limit.as_secs_f64()),
        other => other.to_string(),
    };
    let response = client.send(request).await.map_err(failed)?;
    let status = response.status();
    if (300..400).contains(&status) {
        let to = response.header("location").unwrap_or("nowhere").to_owned();
        return Err(format!("status {status}, a redirect to {to}: name the address of the server"));
    }
    let is_success = response.is_success();
    let body = response.body().await.map_err(failed)?;
    let body: Value = serde_json::from_slice(&body.bytes).unwrap_or_default();
    describe(status, is_success, &body)
}

/// The sentence about an answer.
fn describe(status: u16, is_success: bool, body: &Value) -> Result<String, String> {
    let text = |key: &str| body.get(key).and_then(Value::as_str);
    match (is_success, text("status"), text("reason")) {
        (true, Some(state), None) => Ok(state.to_owned()),
        (_, Some(state), Some(reason)) => {
            let sentence = format!("{state}: {reason}");
            if is_success { Ok(sentence) } else { Err(sentence) }
        }
        (false, Some(state), None) => Err(state.to_owned()),
        (_, None, _) => Err(format!("status {status}, and not the answer of a Visavis server")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_on_all_interfaces_is_asked_over_loopback() {
        for (listen, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("0.0.0.0:9000", "http://127.0.0.1:9000"),
            ("[::]:9000", "http://127.0.0.1:9000"),
            (":9000", "http://127.0.0.1:9000"),
            ("192.0.2.7:80", "http://192.0.2.7:80"),
        ] {
            assert_eq!(address_of(listen.parse().unwrap()).as_deref(), Ok(expected));
        }
        let any = address_of("127.0.0.1:0".parse().unwrap()).unwrap_err();
        assert!(any.contains("server.listen has the port 0"), "{any}");
    }

    #[test]
    fn the_question_is_added_to_the_address_of_a_server() {
        let url = |address: &str| question(address, READY).map(|url| url.to_string());
        for (address, expected) in [
            ("http://h:1", "http://h:1/readyz"),
            ("https://h.example/base/", "https://h.example/base/readyz"),
            ("http://h/healthz", "http://h/healthz"),
        ] {
            assert_eq!(url(address).as_deref(), Ok(expected));
        }
        for (address, reason) in [
            ("ftp://h", "\"ftp://h\" is not an http or https URL, such as http://127.0.0.1:8080"),
            ("localhost:8080", "\"localhost:8080\" is not an http or https URL"),
            ("http://", "\"http://\" is not an http or https URL"),
            ("http://h/?a=b", "\"http://h/?a=b\" must be the address of a server without a query"),
        ] {
            let refused = url(address).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/readyz", silent.local_addr().unwrap()).parse().unwrap();
        let reason = ask(&url, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(reason, "no answer within 0.05 s");
    }

    #[test]
    fn an_answer_is_one_sentence() {
        let ready = json!({"status": "ready"});
        assert_eq!(describe(200, true, &ready), Ok("ready".into()));
        let degraded = json!({"status": "ready", "reason": "a thread has failed"});
        assert_eq!(describe(200, true, &degraded), Ok("ready: a thread has failed".into()));
        let loading = json!({"status": "not ready", "reason": "the models are loading"});
        assert_eq!(describe(503, false, &loading), Err("not ready: the models are loading".into()));
        for (status, is_success, body) in [(200, true, json!({})), (404, false, json!([]))] {
            let expected = format!("status {status}, and not the answer of a Visavis server");
            assert_eq!(describe(status, is_success, &body), Err(expected));
        }
    }
}
