//! Servers of vendors: their addresses, the connections to them, and their failures. Shared by all
//! kinds of models.

mod base_url;
pub(crate) mod connection;
pub(crate) mod failure;

pub(crate) use base_url::base_url;

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
