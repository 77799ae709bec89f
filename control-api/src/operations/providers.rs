//! Operations on the providers of models and on the keys for them, one row each.

use super::operation::{DONE_RESPONSE, Operation, PROVIDERS, op};

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
        DONE_RESPONSE,
    )
    .json_body("CredentialBody")
    .not_found_message()
    .workspace_limited(),
    op(PROVIDERS, "delete", "/v1/ext/credentials/{name}", "Delete a stored key", DONE_RESPONSE)
        .not_found_message(),
];
