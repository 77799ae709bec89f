//! Operations on conversations, their resources and the server, one row each.

use super::operation::{
    Auth, Body, CONTROL, CONVERSATIONS, DONE_RESPONSE, JOINING, KEYS, Operation, SERVER, WEBHOOKS, op,
};

const COMMAND_RESPONSES: &[(u16, &str, &str)] = &[
    (200, "Message", "Done"),
    (409, "Error", "Not in this state"),
    (503, "NoCapacity", "The call is held by another server; Retry-After says when to come back"),
];
const PAGE_RESPONSE: &[(u16, &str, &str)] = &[(200, "html", "A page")];

/// All rows of this file.
pub(super) const OPERATIONS: &[Operation] = &[
    op(
        CONVERSATIONS,
        "post",
        "/v1/auth/conversation",
        "Make a conversation for a client: its session token",
        &[
            (200, "Pass", "Made"),
            (409, "Error", "The agent is not active"),
            (503, "NoCapacity", "The server takes no new calls"),
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
        "Make a conversation",
        &[
            (201, "NewConversation", "Made"),
            (409, "Error", "The agent is not active"),
            (503, "NoCapacity", "The server takes no new calls"),
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
        "Erase an ended conversation with all that hangs on it",
        &[(204, "", "Erased"), (409, "Error", "It has not ended")],
    )
    .not_found_error()
    .operate_scope(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/turns",
        "Where each turn's time went",
        &[(200, "[Turn]", "Turns")],
    )
    .not_found_error(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/events",
        "The conversation's events; a server-sent stream where text/event-stream is accepted",
        &[(200, "[Event]", "Events")],
    )
    .not_found_error(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/conversation/{id}/feedback",
        "Keep what the user thought of it; the last word counts",
        &[(200, "Message", "Kept")],
    )
    .json_body("Feedback")
    .not_found_error()
    .operate_scope(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/externalmeeting",
        "Send an agent into a meeting",
        &[(502, "text", "The meeting service does not take the agent")],
    )
    .json_body("Meeting")
    .not_found_message()
    .operate_scope(),
    op(CONTROL, "put", "/v1/conversation/{id}/speak", "Let the agent say this", COMMAND_RESPONSES)
        .json_body("Speak")
        .not_found_error()
        .operate_scope(),
    op(CONTROL, "post", "/v1/conversation/{id}/interrupt", "Stop the agent's speech", COMMAND_RESPONSES)
        .not_found_error()
        .operate_scope(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/respond",
        "Let the agent answer this as if the user had said it",
        COMMAND_RESPONSES,
    )
    .json_body("Respond")
    .not_found_error()
    .operate_scope(),
    op(CONTROL, "post", "/v1/conversation/{id}/context", "Tell the agent more", COMMAND_RESPONSES)
        .json_body("Context")
        .not_found_error()
        .operate_scope(),
    op(
        CONTROL,
        "delete",
        "/v1/conversation/{id}",
        "End the call; its record stays",
        &[
            (200, "Ended", "Ended"),
            (409, "Error", "It has ended"),
            (503, "NoCapacity", "The call is held by another server, or its end is not stored yet"),
        ],
    )
    .not_found_error()
    .operate_scope(),
    op(
        WEBHOOKS,
        "get",
        "/v1/ext/conversation/{id}/deliveries",
        "What became of a conversation's webhooks",
        &[(200, "[Delivery]", "Webhooks in their order")],
    )
    .list()
    .not_found_error(),
    op(
        WEBHOOKS,
        "get",
        "/v1/ext/deadletters",
        "Webhooks that were given up, newest first",
        &[(200, "[Delivery]", "Dead letters")],
    )
    .list(),
    op(
        WEBHOOKS,
        "post",
        "/v1/ext/deadletter/{id}/redeliver",
        "Send a dead letter again, under the same id",
        DONE_RESPONSE,
    )
    .not_found_message(),
    op(KEYS, "post", "/v1/ext/apikey", "Make an API key; it is told only here", &[(201, "NewKey", "Made")])
        .json_body("KeyBody")
        .operate_scope(),
    op(KEYS, "get", "/v1/ext/apikey", "List API keys by their prefix", &[(200, "[Key]", "Keys")]).list(),
    op(KEYS, "delete", "/v1/ext/apikey/{id}", "Revoke an API key", DONE_RESPONSE).not_found_message(),
    op(
        SERVER,
        "get",
        "/v1/ext/providers",
        "What agents may name as their ears, mind and voice",
        &[(200, "[Provider]", "Providers")],
    )
    .list(),
    op(
        JOINING,
        "post",
        "/rtc/{conversation_id}",
        "Offer a connection (WHIP manners)",
        &[
            (201, "sdp", "Answer"),
            (406, "Error", "The offer has no Opus"),
            (409, "Error", "The conversation has ended"),
            (429, "Error", "Too many offers"),
            (503, "NoCapacity", "No room"),
        ],
    )
    .body(Body::Sdp)
    .auth(Auth::SessionToken),
    op(
        JOINING,
        "patch",
        "/rtc/{conversation_id}/{resource}",
        "Candidates; none are needed",
        &[(204, "", "Taken"), (409, "Error", "The conversation has ended")],
    )
    .body(Body::Trickle)
    .not_found_error()
    .auth(Auth::SessionToken),
    op(JOINING, "delete", "/rtc/{conversation_id}/{resource}", "Hang up", &[(200, "", "Hung up")])
        .not_found_error()
        .auth(Auth::SessionToken),
    op(
        JOINING,
        "post",
        "/api/offer",
        "Offer a connection (as RTVI clients do)",
        &[
            (200, "Answer", "Answer"),
            (406, "Error", "The offer has no Opus"),
            (409, "Error", "The conversation has ended"),
            (429, "Error", "Too many offers"),
            (503, "NoCapacity", "No room"),
        ],
    )
    .json_body("Offer")
    .auth(Auth::SessionToken),
    op(
        JOINING,
        "patch",
        "/api/offer",
        "Candidates; none are needed",
        &[(200, "Taken", "Taken"), (409, "Error", "The conversation has ended")],
    )
    .json_body("Candidates")
    .auth(Auth::SessionToken),
    op(JOINING, "get", "/join/{conversation_id}", "The page where a person joins", PAGE_RESPONSE)
        .auth(Auth::Public),
    op(
        JOINING,
        "get",
        "/join/{conversation_id}/about",
        "What the page may know of its conversation before it offers anything",
        &[(200, "About", "Who speaks, and the status"), (409, "Error", "The conversation has ended")],
    )
    .auth(Auth::SessionToken),
    op(JOINING, "get", "/embed/{agent_id}", "An agent's page for an iframe", PAGE_RESPONSE)
        .not_found_message()
        .auth(Auth::Public),
    op(
        JOINING,
        "post",
        "/embed/{agent_id}",
        "What a click on that page asks for",
        &[
            (200, "Pass", "Made"),
            (403, "Error", "The asking page is not one of the agent's"),
            (409, "Error", "The agent is not active"),
            (
                429,
                "Invalid",
                "Too many requests of this address, or a limit of the agent's workspace is reached",
            ),
            (503, "NoCapacity", "The server takes no new calls"),
        ],
    )
    .json_body("EmbedBody")
    .not_found_message()
    .auth(Auth::Public),
    op(SERVER, "get", "/", "The landing page", PAGE_RESPONSE).auth(Auth::Public),
    op(SERVER, "get", "/docs", "This document for people", PAGE_RESPONSE).auth(Auth::Public),
    op(SERVER, "get", "/openapi.json", "This document", &[(200, "Document", "The document")])
        .auth(Auth::Public),
    op(SERVER, "get", "/healthz", "Whether the server lives", &[(200, "Health", "It does")])
        .auth(Auth::Public),
    op(
        SERVER,
        "get",
        "/readyz",
        "Whether it takes calls",
        &[
            (200, "Health", "It does, and what has failed all the same"),
            (503, "Health", "It does not, and why"),
        ],
    )
    .auth(Auth::Public),
    op(SERVER, "get", "/metrics", "Numbers for Prometheus", &[(200, "metrics", "Metrics")])
        .auth(Auth::LocalOrMetricsToken),
];
