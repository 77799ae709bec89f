//! Servers of vendors: their addresses, the connections to them, and their failures. Shared by all
//! kinds of models.

mod base_url;
pub(crate) mod connection;
pub(crate) mod failure;
#[cfg(test)]
pub(crate) mod loopback;
pub(crate) mod phrases;

pub(crate) use base_url::{base_url, is_openai_host, server_url, with_path};

use crate::redaction::{redact, redact_id};

/// The server of a vendor.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Name of the vendor in sentences.
    pub(crate) vendor: &'static str,
    /// Address with all parameters. Contains no secret.
    pub(crate) url: String,
    /// Name and value of the header with the key, if there is a key. Secret.
    pub(crate) authorization: Option<(&'static str, String)>,
    /// What no error may contain.
    pub(crate) secrets: Vec<String>,
    /// The client of the connections, trusted if the operator configured the address.
    pub(crate) client: egress::Client,
}

impl Endpoint {
    /// The server at `url`. The key is sent in the header `header`, after `prefix`. A key of blanks
    /// is none.
    pub(crate) fn new(
        vendor: &'static str,
        url: String,
        (header, prefix): (&'static str, &str),
        token: Option<&str>,
        client: egress::Client,
    ) -> Self {
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        Self {
            vendor,
            url,
            authorization: token.map(|token| (header, format!("{prefix}{token}"))),
            secrets: token.iter().map(|token| (*token).to_owned()).collect(),
            client,
        }
    }

    /// The server at `url`, with a header and its value if there is a key. The key `token` is what
    /// no error may contain.
    pub(crate) fn with_header(
        vendor: &'static str,
        url: impl Into<String>,
        authorization: Option<(&'static str, String)>,
        token: Option<&str>,
        client: egress::Client,
    ) -> Self {
        let secrets = token.iter().map(|token| (*token).to_owned()).collect();
        Self { vendor, url: url.into(), authorization, secrets, client }
    }

    /// A vendor's id of a request or a stream, for logs.
    pub(crate) fn redact_id(&self, id: &str) -> String {
        redact_id(id, |words| redact(words, &self.secrets, self.vendor))
    }

    /// The same server at another address.
    pub(crate) fn at(&self, url: impl Into<String>) -> Self {
        Self { url: url.into(), ..self.clone() }
    }
}
