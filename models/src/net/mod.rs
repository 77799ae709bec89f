//! The one way out: requests to addresses that somebody else chose (webhooks, tools, `llm.url`).
//!
//! - http and https only, no redirects, no proxy (the address could not be pinned through one), no cookies, no decompression.
//! - A name is resolved once per connection. If any of its addresses is refused, all are; else the connection goes to exactly the addresses
//!   that were checked. A kept connection stays with the address it was checked for, so it may be used again.
//! - Private addresses are refused unless [`Policy::allow_private`] or [`Client::trusted`]; metadata services always.
//! - An [`Error`] names at most the host: paths, queries and headers may be secret.

mod address;
#[cfg(test)]
mod tests;

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

pub use address::{Reach, reach};
pub use reqwest::Method;

use crate::error::Kind;

/// What the operator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Private, loopback and link-local targets too.
    pub allow_private: bool,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The policy forbids the address.
    #[error("refused address")]
    Refused,
    /// The request itself is not allowed: another scheme, a broken header.
    #[error("{0}")]
    Invalid(String),
    /// It took too long.
    #[error("timeout")]
    Timeout,
    /// No connection, or it broke.
    #[error("{0}")]
    Broken(String),
    /// The answer is longer than allowed.
    #[error("response too large")]
    TooLarge,
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Refused | Error::Invalid(_) | Error::TooLarge => Kind::Refused,
            Error::Timeout => Kind::Timeout,
            Error::Broken(_) => Kind::Broken,
        };
        Self::new(kind, error.to_string())
    }
}

/// A request to be sent.
#[derive(Debug)]
pub struct Request {
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    timeout: Option<Duration>,
    limit: usize,
}

/// Time for a whole request where none is given.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Time for name resolution, connection and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of an answer's body where no limit is given.
pub const LIMIT: usize = 1 << 20;

impl Request {
    /// A request to `url`, to be answered within [`TIMEOUT`] by at most [`LIMIT`] bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no http(s) URL with a host.
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
            timeout: Some(TIMEOUT),
            limit: LIMIT,
        })
    }

    /// With this header. A later one of the same name replaces an earlier one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for names and values that HTTP does not allow (CR, LF), and for headers that frame the message.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let bad = || Error::Invalid(format!("bad header {:?}", name.chars().take(64).collect::<String>()));
        let header = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad())?;
        if FRAMING.contains(&header.as_str()) {
            return Err(bad());
        }
        let mut value = HeaderValue::from_str(value.trim_matches([' ', '\t'])).map_err(|_| bad())?;
        value.set_sensitive(true);
        self.headers.retain(|(known, _)| *known != header);
        self.headers.push((header, value));
        Ok(self)
    }

    /// With `Authorization: Bearer`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the token cannot be a header's value.
    pub fn bearer(self, token: &str) -> Result<Self, Error> {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {token}"))
    }

    /// With this body, of type JSON unless a header says otherwise.
    #[must_use]
    pub fn json(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        if self.headers.iter().all(|(name, _)| *name != CONTENT_TYPE) {
            self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        self
    }

    /// To be answered wholly within `timeout`; `None` for streams, which their reader times.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// With a body of at most `bytes` in the answer.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Where it goes.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }
}

/// Headers that frame the message or choose another host: the client's own business. A request refuses them ([`Request::header`]).
pub const FRAMING: [&str; 8] = [
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
    allow_private: bool,
    lookup: Lookup,
}

impl Client {
    /// A client under `policy`.
    ///
    /// # Errors
    /// [`Error::Broken`] if TLS cannot be set up. A system without CA certificates is no error: https then fails at each request.
    pub fn new(policy: Policy) -> Result<Self, Error> {
        Self::with_lookup(policy, Arc::new(|name| Box::pin(system_lookup(name))))
    }

    /// A client that resolves names by `lookup`.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_lookup(policy: Policy, lookup: Lookup) -> Result<Self, Error> {
        let build = |allow_private| build(Checked { lookup: Arc::clone(&lookup), allow_private });
        Ok(Self {
            guarded: build(policy.allow_private)?,
            trusted: build(true)?,
            allow_private: policy.allow_private,
            lookup,
        })
    }

    /// A client under the same policy whose connections are its own: the kept ones are closed with its last clone. Takes some
    /// milliseconds: the system's CA certificates are read again.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn apart(&self) -> Result<Self, Error> {
        let own = build(Checked { lookup: Arc::clone(&self.lookup), allow_private: self.allow_private })?;
        Ok(Self { guarded: own, ..self.clone() })
    }

    /// The same client for what the operator's own configuration names: private targets are allowed, metadata services are not.
    #[must_use]
    pub fn trusted(&self) -> Self {
        Self { guarded: self.trusted.clone(), allow_private: true, ..self.clone() }
    }

    /// Sends a request; returns when the answer's head is there.
    ///
    /// # Errors
    /// See [`Error`]. A status that is no success is no error.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let Request { method, url, headers, body, timeout, limit } = request;
        // The resolver sees names only: an address written into the URL is checked here. The URL's parser has already read
        // decimal, octal and hexadecimal notations as the address they are.
        let literal = match url.host() {
            Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
            Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
            Some(Host::Domain(_)) => None,
            None => return Err(Error::Invalid("URL without a host".into())),
        };
        if literal.is_some_and(|address| !allowed(address, self.allow_private)) {
            return Err(Error::Refused);
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut builder = self.guarded.request(method, url).body(body);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        let inner = builder.send().await.map_err(|e| told(&host, &e))?;
        Ok(Response { inner, host, left: limit })
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    host: String,
    left: usize,
}

impl Response {
    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.inner.status().as_u16()
    }

    /// Whether the status is 2xx.
    #[must_use]
    pub fn success(&self) -> bool {
        self.inner.status().is_success()
    }

    /// The value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.headers().get(name)?.to_str().ok()
    }

    /// With another limit for the rest of the body.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.left = bytes;
        self
    }

    /// The next piece of the body as it came; `None` at its end. May be dropped and called again without losing bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the limit is passed; others as they happen.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.chunk().await.map_err(|e| told(&self.host, &e))?;
        if let Some(chunk) = &chunk {
            self.left = self.left.checked_sub(chunk.len()).ok_or(Error::TooLarge)?;
        }
        Ok(chunk)
    }

    /// The body, cut at the limit.
    ///
    /// # Errors
    /// As they happen while reading.
    pub async fn body(mut self) -> Result<Body, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.inner.chunk().await.map_err(|e| told(&self.host, &e))? {
            let room = self.left - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok(Body { bytes, cut: true });
            }
        }
        Ok(Body { bytes, cut: false })
    }
}

/// What was read of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// At most the limit.
    pub bytes: Vec<u8>,
    /// Whether there was more.
    pub cut: bool,
}

impl Body {
    /// As text; what is no UTF-8 is replaced. A character that the cut split is left out.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = match std::str::from_utf8(&self.bytes) {
            Err(e) if self.cut && e.error_len().is_none() => &self.bytes[..e.valid_up_to()],
            _ => &self.bytes,
        };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Finds a name's addresses.
pub type Lookup = Arc<dyn Fn(String) -> LookedUp + Send + Sync>;

/// The addresses to come.
pub type LookedUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

fn allowed(address: IpAddr, allow_private: bool) -> bool {
    match reach(address) {
        Reach::Public => true,
        Reach::Private => allow_private,
        Reach::Metadata => false,
    }
}

/// A resolver that hands on only what may be connected to.
struct Checked {
    lookup: Lookup,
    allow_private: bool,
}

/// Travels through the connector's errors, so that [`told`] finds it again.
#[derive(Debug, thiserror::Error)]
#[error("refused address")]
struct RefusedAddress;

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.lookup)(name.as_str().to_owned());
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = found.await?;
            // One refused address refuses the name: which of them the connector would take is chance.
            if found.iter().any(|&address| !allowed(address, allow_private)) {
                return Err(RefusedAddress.into());
            }
            // Port 0 stands for the URL's.
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

fn build(resolver: Checked) -> Result<reqwest::Client, Error> {
    let resolver: Arc<dyn Resolve> = Arc::new(resolver);
    let builder = || {
        reqwest::Client::builder()
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
    // Without CA certificates the system's verifier cannot be made: go on without https rather than not at all.
    let no_tls = |_| builder().tls_certs_only([]).build();
    builder().build().or_else(no_tls).map_err(|e| Error::Broken(format!("no TLS: {}", innermost(&e))))
}

/// What `error` is to a reader who may not see the URL.
fn told(host: &str, error: &reqwest::Error) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.is::<RefusedAddress>() {
            return Error::Refused;
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
        "connection broke:"
    };
    Error::Broken(format!("{what} {host}: {}", innermost(error)))
}

/// The root cause's words: the outer ones repeat the URL.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
