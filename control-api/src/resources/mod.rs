//! The resources of the REST interface, one file or folder for each: its routes, its validation,
//! its JSON representation, and its background tasks.

pub(crate) mod agents;
pub(crate) mod api_keys;
pub(crate) mod avatars;
pub(crate) mod characters;
pub(crate) mod conversations;
pub(crate) mod custom_avatars;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod document_resource;
pub(crate) mod guardrails;
pub(crate) mod knowledge;
pub(crate) mod knowledge_cache;
pub(crate) mod mcp;
pub(crate) mod meetings;
pub(crate) mod providers;
pub(crate) mod secret_headers;
pub(crate) mod templates;
pub(crate) mod tools;
