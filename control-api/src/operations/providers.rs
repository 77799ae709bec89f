//! Operations on the providers of models and on the keys for them, one row each.

use super::operation::{Operation, PROVIDERS, op};

const NOT_CONFIGURED: (u16, &str, &str) = (409, "Error", "The provider needs a key or an address");
const FAILED: (u16, &str, &str) = (502, "NoCapacity", "The provider failed; with the reason");
const NO_MODELS: (u16, &str, &str) = (503, "NoCapacity", "The server has no models");
const LIMITED: (u16, &str, &str) =
    (429, "Error", "Too many samples and tests of this workspace, or requests with this key");

/// The responses to a change of a key.
const CREDENTIAL_RESPONSES: &[(u16, &str, &str)] =
    &[(200, "Done", "Done"), (409, "Error", "Agents are in meetings with this account")];

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(
        PROVIDERS,
        "get",
        "/v1/ext/providers",
        "List the STT, LLM and TTS providers that agents can use",
        &[(200, "[Provider]", "Providers")],
    )
    .list(),
    op(
        PROVIDERS,
        "get",
        "/v1/ext/providers/local",
        "List the LLM servers of the server's machine; only its operator sees any",
        &[(200, "[LocalServer]", "LLM servers")],
    )
    .list(),
    op(
        PROVIDERS,
        "post",
        "/v1/ext/providers/test",
        "Test the providers of an agent with one real request each",
        &[(200, "ProvidersTest", "The latency or the error of each step"), NO_MODELS, LIMITED],
    )
    .json_body("ProvidersTestBody")
    .not_found_message(),
    op(
        PROVIDERS,
        "get",
        "/v1/ext/provider/{provider}/voices",
        "List the voices of a TTS provider; `default` is that of agents that name none",
        &[(200, "[Voice]", "Voices"), NOT_CONFIGURED, FAILED, NO_MODELS],
    )
    .list_by_language()
    .not_found_message(),
    op(
        PROVIDERS,
        "post",
        "/v1/ext/provider/{provider}/sample",
        "Let a voice speak a text; provider `default` is that of agents that name none",
        &[(200, "wav", "The sound"), NOT_CONFIGURED, FAILED, NO_MODELS, LIMITED],
    )
    .json_body("SampleBody")
    .not_found_message()
    .operate_scope(),
    op(
        PROVIDERS,
        "get",
        "/v1/ext/credentials",
        "List the stored keys of vendors and services, without their secrets",
        &[(200, "[Credential]", "Keys")],
    )
    .list(),
    op(
        PROVIDERS,
        "put",
        "/v1/ext/credentials/{name}",
        "Store the key of a vendor or service; agents without a key of their own use it",
        CREDENTIAL_RESPONSES,
    )
    .json_body("CredentialBody")
    .not_found_message()
    .workspace_limited(),
    op(
        PROVIDERS,
        "delete",
        "/v1/ext/credentials/{name}",
        "Delete a stored key",
        CREDENTIAL_RESPONSES,
    )
    .not_found_message(),
];
