//! Operations on conversations, their resources and the server, one row each.

use super::operation::{
    Auth, CONTROL, CONVERSATIONS, DONE_RESPONSE, KEYS, Operation, SERVER, WEBHOOKS, op,
};

const COMMAND_RESPONSES: &[(u16, &str, &str)] = &[
    (200, "Message", "Done"),
    (409, "Error", "Not allowed in this state"),
    (503, "NoCapacity", "The server that runs the call does not respond"),
];
const PAGE_RESPONSE: &[(u16, &str, &str)] = &[(200, "html", "A page")];

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(
        CONVERSATIONS,
        "post",
        "/v1/auth/conversation",
        "Create a conversation and a session token for a client",
        &[
            (200, "Pass", "Created"),
            (409, "Error", "The agent is not active"),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("AuthBody")
    .not_found_message()
    .operate_scope()
    .workspace_limited(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/conversation",
        "Create a conversation",
        &[
            (201, "NewConversation", "Created"),
            (409, "Error", "The agent is not active, or LiveKit is not configured"),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("ConversationBody")
    .not_found_message()
    .operate_scope()
    .workspace_limited(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation",
        "List conversations, newest first",
        &[(200, "[ListedConversation]", "Conversations")],
    )
    .list(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}",
        "Read a conversation with its transcript",
        &[(200, "Conversation", "The conversation")],
    )
    .not_found_error(),
    op(
        CONVERSATIONS,
        "delete",
        "/v1/ext/conversation/{id}",
        "Erase an ended conversation and all data that belong to it",
        &[(204, "", "Erased"), (409, "Error", "The conversation has not ended")],
    )
    .not_found_error()
    .operate_scope(),
    op(
        CONVERSATIONS,
        "delete",
        "/v1/ext/conversation/{id}/recording",
        "Delete every copy of a recording",
        &[(204, "", "Deleted"), (409, "Error", "The conversation has not ended")],
    )
    .not_found_error()
    .operate_scope(),
    op(
        CONVERSATIONS,
        "get",
        "/media/{folder}/{file}",
        "Read a recording or a file of a video by a link of its record; with ranges",
        &[
            (200, "webm", "The file, with its own media type"),
            (206, "webm", "A part of the file"),
            (403, "Error", "The link is not valid, or has expired"),
            (416, "", "The file has no such part"),
        ],
    )
    .not_found_error()
    .auth(Auth::Public),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/turns",
        "Read the latencies of each turn",
        &[(200, "[Turn]", "Turns")],
    )
    .not_found_error(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/events",
        "List the events; as a server-sent stream if the client accepts text/event-stream",
        &[(200, "[Event]", "Events")],
    )
    .not_found_error(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/conversation/{id}/feedback",
        "Store the user's feedback; it replaces earlier feedback",
        &[(200, "Message", "Stored")],
    )
    .json_body("Feedback")
    .not_found_error()
    .operate_scope(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/externalmeeting",
        "Send an agent into a meeting",
        &[
            (200, "text", "The agent was sent; Location names its conversation"),
            (409, "Error", "The agent is not active, or is already in this meeting"),
            (502, "text", "There is no meeting service, or it rejected the agent"),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("Meeting")
    .not_found_message()
    .operate_scope()
    .workspace_limited(),
    op(
        CONTROL,
        "put",
        "/v1/conversation/{id}/speak",
        "Let the agent speak a text",
        COMMAND_RESPONSES,
    )
    .json_body("Speak")
    .not_found_error()
    .operate_scope(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/interrupt",
        "Stop the agent's speech",
        COMMAND_RESPONSES,
    )
    .not_found_error()
    .operate_scope(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/respond",
        "Let the agent answer a text as if the user had said it",
        COMMAND_RESPONSES,
    )
    .json_body("Respond")
    .not_found_error()
    .operate_scope(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/context",
        "Extend or replace the context",
        COMMAND_RESPONSES,
    )
    .json_body("Context")
    .not_found_error()
    .operate_scope(),
    op(
        CONTROL,
        "delete",
        "/v1/conversation/{id}",
        "End the call; its record is kept",
        &[
            (200, "Ended", "Ended"),
            (409, "Error", "The conversation has ended"),
            (
                503,
                "NoCapacity",
                "The server that runs the call does not respond, or the end is not stored yet",
            ),
        ],
    )
    .not_found_error()
    .operate_scope(),
    op(
        WEBHOOKS,
        "get",
        "/v1/ext/conversation/{id}/deliveries",
        "List the webhooks of a conversation with their states",
        &[(200, "[Delivery]", "Webhooks in the order of their events")],
    )
    .list()
    .not_found_error(),
    op(
        WEBHOOKS,
        "get",
        "/v1/ext/deadletters",
        "List webhooks that were given up, newest first",
        &[(200, "[Delivery]", "Dead letters")],
    )
    .list(),
    op(
        WEBHOOKS,
        "post",
        "/v1/ext/deadletter/{id}/redeliver",
        "Send a dead letter again with the same id",
        DONE_RESPONSE,
    )
    .not_found_message(),
    op(
        KEYS,
        "get",
        "/v1/ext/servers",
        "List the servers that share the database; only their operator sees any",
        &[(200, "[Server]", "Servers")],
    )
    .list(),
    op(
        KEYS,
        "post",
        "/v1/ext/apikey",
        "Create an API key; it is shown once",
        &[(201, "NewKey", "Created")],
    )
    .json_body("KeyBody")
    .operate_scope(),
    op(
        KEYS,
        "get",
        "/v1/ext/apikey",
        "List API keys with their prefixes",
        &[(200, "[Key]", "Keys")],
    )
    .list(),
    op(KEYS, "delete", "/v1/ext/apikey/{id}", "Revoke an API key", DONE_RESPONSE)
        .not_found_message(),
    op(
        WEBHOOKS,
        "post",
        "/v1/meetings/webhook/{token}",
        "Receive a webhook of a meeting service; its signature is the authentication",
        &[
            (200, "", "Received"),
            (400, "Error", "The event is malformed"),
            (401, "Error", "The address or the signature is wrong"),
        ],
    )
    .auth(Auth::Public),
    op(SERVER, "get", "/", "The landing page", PAGE_RESPONSE).auth(Auth::Public),
    op(SERVER, "get", "/docs", "This document as an HTML page", PAGE_RESPONSE).auth(Auth::Public),
    op(SERVER, "get", "/openapi.json", "This document", &[(200, "Document", "The document")])
        .auth(Auth::Public),
    op(
        SERVER,
        "get",
        "/healthz",
        "Check whether the server is running",
        &[(200, "Health", "It is running")],
    )
    .auth(Auth::Public),
    op(
        SERVER,
        "get",
        "/readyz",
        "Check whether the server accepts calls",
        &[
            (200, "Health", "It accepts calls; with the reason if a part has failed"),
            (503, "Health", "It accepts no calls; with the reason"),
        ],
    )
    .auth(Auth::Public),
    op(
        SERVER,
        "get",
        "/v1/ext/capabilities",
        "Read what this server can do",
        &[(200, "Capabilities", "What depends on the server's machine")],
    ),
    op(SERVER, "get", "/metrics", "Metrics for Prometheus", &[(200, "metrics", "Metrics")])
        .auth(Auth::LocalOrMetricsToken),
];
