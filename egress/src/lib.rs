//! HTTP client for requests to addresses that a user or operator chose (webhooks, tools,
//! `llm.url`). All outgoing requests of the server go through it.
//!
//! - http and https only; no redirects, no proxy (the address could not be pinned through one), no
//!   cookies, no decompression.
//! - A name is resolved once per connection. If one of its addresses is forbidden, the request
//!   fails. Otherwise the connection goes to exactly the checked addresses. A pooled connection
//!   stays with the address for which it was checked, so it may be reused.
//! - Private addresses are rejected unless [`Policy::allow_private`] or [`Client::trusted`] allows
//!   them. Metadata services are always rejected.
//! - An [`Error`] names at most the host: paths, queries and headers may be secret.

mod address;
#[cfg(test)]
mod tests;
pub mod websocket;

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::redirect;
use url::{Host, Url};

pub use address::{AddressClass, classify};
pub use reqwest::Method;

/// What the operator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether private, loopback and link-local targets are allowed.
    pub allow_private: bool,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The policy forbids the address.
    #[error("refused address")]
    ForbiddenAddress,
    /// The request itself is not allowed: another scheme, an invalid header.
    #[error("{0}")]
    Invalid(String),
    /// The time limit expired.
    #[error("timeout")]
    Timeout,
    /// The connection could not be opened, or failed.
    #[error("{0}")]
    Connection(String),
    /// The response is longer than allowed.
    #[error("response too large")]
    TooLarge,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    timeout: Option<Duration>,
    limit: usize,
}

/// Default timeout of a whole request.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout for name resolution, connection and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default maximum size of a response's body, in bytes.
pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;

impl Request {
    /// A request to `url`. The response must be complete within [`DEFAULT_TIMEOUT`] and have at
    /// most [`DEFAULT_BODY_LIMIT`] bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not an http(s) URL with a host.
    pub fn new(method: Method, url: &str) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|e| Error::Invalid(format!("bad URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Invalid("only http and https URLs are allowed".into()));
        }
        Ok(Self {
            method,
            url,
            headers: Vec::new(),
            body: Bytes::new(),
            timeout: Some(DEFAULT_TIMEOUT),
            limit: DEFAULT_BODY_LIMIT,
        })
    }

    /// Adds a header. A later one of the same name replaces an earlier one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for names and values that HTTP does not allow (CR, LF), and for
    /// [`FRAMING_HEADERS`].
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let bad = || {
            Error::Invalid(format!("bad header {:?}", name.chars().take(64).collect::<String>()))
        };
        let header = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad())?;
        if FRAMING_HEADERS.contains(&header.as_str()) {
            return Err(bad());
        }
        let mut value =
            HeaderValue::from_str(value.trim_matches([' ', '\t'])).map_err(|_| bad())?;
        value.set_sensitive(true);
        self.headers.retain(|(known, _)| *known != header);
        self.headers.push((header, value));
        Ok(self)
    }

    /// Adds `Authorization: Bearer`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the token cannot be a header's value.
    pub fn bearer(self, token: &str) -> Result<Self, Error> {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {token}"))
    }

    /// Sets the body. Its type is JSON unless a header says otherwise.
    #[must_use]
    pub fn json(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        if self.headers.iter().all(|(name, _)| *name != CONTENT_TYPE) {
            self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        self
    }

    /// Sets the timeout of the whole response; `None` for streams, which their reader times.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum size of the response's body, in bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Target of the request.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }
}

/// Headers that frame the message or choose another host. Only the client sets them, and a request
/// rejects them ([`Request::header`]).
pub const FRAMING_HEADERS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "proxy-authorization",
];

/// Sends requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    guarded: reqwest::Client,
    trusted: reqwest::Client,
    /// Its connections become WebSockets.
    upgradable: reqwest::Client,
    upgradable_trusted: reqwest::Client,
    allow_private: bool,
    lookup: Lookup,
}

impl Client {
    /// A client under `policy`.
    ///
    /// # Errors
    /// [`Error::Connection`] if TLS cannot be set up. A system without CA certificates is no error:
    /// https requests then fail one by one.
    pub fn new(policy: Policy) -> Result<Self, Error> {
        Self::with_lookup(policy, Arc::new(|name| Box::pin(system_lookup(name))))
    }

    /// A client that resolves names by `lookup`.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_lookup(policy: Policy, lookup: Lookup) -> Result<Self, Error> {
        let build = |allow_private| {
            build_client(CheckedResolver { lookup: Arc::clone(&lookup), allow_private })
        };
        Ok(Self {
            guarded: build(policy.allow_private)?,
            trusted: build(true)?,
            upgradable: build(policy.allow_private)?,
            upgradable_trusted: build(true)?,
            allow_private: policy.allow_private,
            lookup,
        })
    }

    /// A client under the same policy with its own connection pool, which is closed with its last
    /// clone. [`Client::trusted`] of it still shares the pool of the original. Takes some
    /// milliseconds, because the system's CA certificates are read again.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_own_connections(&self) -> Result<Self, Error> {
        let resolver =
            CheckedResolver { lookup: Arc::clone(&self.lookup), allow_private: self.allow_private };
        let own = build_client(resolver)?;
        Ok(Self { guarded: own, ..self.clone() })
    }

    /// The same client for addresses in the operator's own configuration: private targets are
    /// allowed, metadata services are not.
    #[must_use]
    pub fn trusted(&self) -> Self {
        Self {
            guarded: self.trusted.clone(),
            upgradable: self.upgradable_trusted.clone(),
            allow_private: true,
            ..self.clone()
        }
    }

    /// Sends a request; returns when the head of the response has arrived.
    ///
    /// # Errors
    /// See [`Error`]. A status other than 2xx is no error.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        self.send_over(&self.guarded, request).await
    }

    async fn send_over(
        &self,
        client: &reqwest::Client,
        request: Request,
    ) -> Result<Response, Error> {
        let Request { method, url, headers, body, timeout, limit } = request;
        // The resolver gets names only, so an address in the URL is checked here. The URL parser
        // has already converted decimal, octal and hexadecimal notations.
        let literal = match url.host() {
            Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
            Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
            Some(Host::Domain(_)) => None,
            None => return Err(Error::Invalid("URL without a host".into())),
        };
        if literal.is_some_and(|address| !is_allowed(address, self.allow_private)) {
            return Err(Error::ForbiddenAddress);
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut builder = client.request(method, url).body(body);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        let inner = builder.send().await.map_err(|e| classify_error(&host, &e))?;
        Ok(Response { inner, host, remaining: limit })
    }
}

/// A response whose body is not read yet.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    host: String,
    remaining: usize,
}

impl Response {
    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.inner.status().as_u16()
    }

    /// Whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.inner.status().is_success()
    }

    /// The value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.headers().get(name)?.to_str().ok()
    }

    /// Sets another limit for the rest of the body, in bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.remaining = bytes;
        self
    }

    /// The next chunk of the body as it arrived; `None` at its end. Cancel-safe: the future may be
    /// dropped and `chunk` called again without loss of bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the limit is exceeded; other errors of the connection.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.chunk().await.map_err(|e| classify_error(&self.host, &e))?;
        if let Some(chunk) = &chunk {
            self.remaining = self.remaining.checked_sub(chunk.len()).ok_or(Error::TooLarge)?;
        }
        Ok(chunk)
    }

    /// The body, truncated at the limit.
    ///
    /// # Errors
    /// Errors of the connection.
    pub async fn body(mut self) -> Result<Body, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) =
            self.inner.chunk().await.map_err(|e| classify_error(&self.host, &e))?
        {
            let room = self.remaining - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok(Body { bytes, truncated: true });
            }
        }
        Ok(Body { bytes, truncated: false })
    }
}

/// The part of a response's body that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// At most the limit.
    pub bytes: Vec<u8>,
    /// Whether the body was longer.
    pub truncated: bool,
}

impl Body {
    /// The body as text; invalid UTF-8 is replaced. A character that the truncation split is
    /// omitted.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = match std::str::from_utf8(&self.bytes) {
            Err(e) if self.truncated && e.error_len().is_none() => &self.bytes[..e.valid_up_to()],
            _ => &self.bytes,
        };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Resolves a name to its addresses.
pub type Lookup = Arc<dyn Fn(String) -> LookupFuture + Send + Sync>;

/// Future of the addresses.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

fn is_allowed(address: IpAddr, allow_private: bool) -> bool {
    match classify(address) {
        AddressClass::Public => true,
        AddressClass::Private => allow_private,
        AddressClass::Metadata => false,
    }
}

/// A resolver that returns only addresses to which a connection is allowed.
struct CheckedResolver {
    lookup: Lookup,
    allow_private: bool,
}

/// Passes through the connector's errors, so that [`classify_error`] can find it.
#[derive(Debug, thiserror::Error)]
#[error("refused address")]
struct ForbiddenAddress;

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.lookup)(name.as_str().to_owned());
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = found.await?;
            // One forbidden address rejects the name, because the connector may choose any of them.
            if found.iter().any(|&address| !is_allowed(address, allow_private)) {
                return Err(ForbiddenAddress.into());
            }
            // Port 0 stands for the port of the URL.
            let addresses: Addrs =
                Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

fn build_client(resolver: CheckedResolver) -> Result<reqwest::Client, Error> {
    let resolver: Arc<dyn Resolve> = Arc::new(resolver);
    let builder = || {
        reqwest::Client::builder()
            // The client of the object storage brings HTTP/2. Here, one lost packet would delay all
            // streams of a vendor, and a connection of HTTP/2 cannot become a WebSocket.
            .http1_only()
            .dns_resolver(Arc::clone(&resolver))
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(300))
            .pool_max_idle_per_host(32)
            .user_agent(concat!("visavis/", env!("CARGO_PKG_VERSION")))
    };
    // Without CA certificates, the system's verifier cannot be created. The client then works
    // without https.
    let no_tls = |_| builder().tls_certs_only([]).build();
    builder()
        .build()
        .or_else(no_tls)
        .map_err(|e| Error::Connection(format!("no TLS: {}", root_cause(&e))))
}

/// Converts `error` for a reader who must not learn the URL.
fn classify_error(host: &str, error: &reqwest::Error) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.is::<ForbiddenAddress>() {
            return Error::ForbiddenAddress;
        }
        cause = current.source();
    }
    if error.is_timeout() {
        return Error::Timeout;
    }
    if error.is_builder() {
        return Error::Invalid("bad request".into());
    }
    let what = if error.is_dns() {
        "cannot resolve"
    } else if error.is_connect() {
        "cannot connect to"
    } else {
        "connection failed:"
    };
    Error::Connection(format!("{what} {host}: {}", root_cause(error)))
}

/// Message of the root cause; outer errors repeat the URL.
fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
