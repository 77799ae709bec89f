//! Operations on conversations, their resources and the server, one row each.

use super::operation::{
    Body, CONTROL, CONVERSATIONS, DONE, Door, JOINING, KEYS, Operation, SERVER, WEBHOOKS, op,
};

const TOLD: &[(u16, &str, &str)] = &[
    (200, "Message", "Done"),
    (409, "Error", "Not in this state"),
    (503, "NoCapacity", "The call is held by another server; Retry-After says when to come back"),
];
const PAGE: &[(u16, &str, &str)] = &[(200, "html", "A page")];

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
    .takes("AuthBody")
    .or_message()
    .operates()
    .counted(),
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
    .takes("ConversationBody")
    .or_message()
    .operates()
    .counted(),
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
    .or_error(),
    op(
        CONVERSATIONS,
        "delete",
        "/v1/ext/conversation/{id}",
        "Erase an ended conversation with all that hangs on it",
        &[(204, "", "Erased"), (409, "Error", "It has not ended")],
    )
    .or_error()
    .operates(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/turns",
        "Where each turn's time went",
        &[(200, "[Turn]", "Turns")],
    )
    .or_error(),
    op(
        CONVERSATIONS,
        "get",
        "/v1/ext/conversation/{id}/events",
        "The conversation's events; a server-sent stream where text/event-stream is accepted",
        &[(200, "[Event]", "Events")],
    )
    .or_error(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/conversation/{id}/feedback",
        "Keep what the user thought of it; the last word counts",
        &[(200, "Message", "Kept")],
    )
    .takes("Feedback")
    .or_error()
    .operates(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/externalmeeting",
        "Send an agent into a meeting",
        &[(502, "text", "The meeting service does not take the agent")],
    )
    .takes("Meeting")
    .or_message()
    .operates(),
    op(CONTROL, "put", "/v1/conversation/{id}/speak", "Let the agent say this", TOLD)
        .takes("Speak")
        .or_error()
        .operates(),
    op(CONTROL, "post", "/v1/conversation/{id}/interrupt", "Stop the agent's speech", TOLD)
        .or_error()
        .operates(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/respond",
        "Let the agent answer this as if the user had said it",
        TOLD,
    )
    .takes("Respond")
    .or_error()
    .operates(),
    op(CONTROL, "post", "/v1/conversation/{id}/context", "Tell the agent more", TOLD)
        .takes("Context")
        .or_error()
        .operates(),
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
    .or_error()
    .operates(),
    op(
        WEBHOOKS,
        "get",
        "/v1/ext/conversation/{id}/deliveries",
        "What became of a conversation's webhooks",
        &[(200, "[Delivery]", "Webhooks in their order")],
    )
    .list()
    .or_error(),
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
        DONE,
    )
    .or_message(),
    op(KEYS, "post", "/v1/ext/apikey", "Make an API key; it is told only here", &[(201, "NewKey", "Made")])
        .takes("KeyBody")
        .operates(),
    op(KEYS, "get", "/v1/ext/apikey", "List API keys by their prefix", &[(200, "[Key]", "Keys")]).list(),
    op(KEYS, "delete", "/v1/ext/apikey/{id}", "Revoke an API key", DONE).or_message(),
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
    .behind(Door::Token),
    op(
        JOINING,
        "patch",
        "/rtc/{conversation_id}/{resource}",
        "Candidates; none are needed",
        &[(204, "", "Taken"), (409, "Error", "The conversation has ended")],
    )
    .body(Body::Trickle)
    .or_error()
    .behind(Door::Token),
    op(JOINING, "delete", "/rtc/{conversation_id}/{resource}", "Hang up", &[(200, "", "Hung up")])
        .or_error()
        .behind(Door::Token),
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
    .takes("Offer")
    .behind(Door::Token),
    op(
        JOINING,
        "patch",
        "/api/offer",
        "Candidates; none are needed",
        &[(200, "Taken", "Taken"), (409, "Error", "The conversation has ended")],
    )
    .takes("Candidates")
    .behind(Door::Token),
    op(JOINING, "get", "/join/{conversation_id}", "The page where a person joins", PAGE).behind(Door::Open),
    op(
        JOINING,
        "get",
        "/join/{conversation_id}/about",
        "What the page may know of its conversation before it offers anything",
        &[(200, "About", "Who speaks, and the status"), (409, "Error", "The conversation has ended")],
    )
    .behind(Door::Token),
    op(JOINING, "get", "/embed/{agent_id}", "An agent's page for an iframe", PAGE)
        .or_message()
        .behind(Door::Open),
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
    .takes("EmbedBody")
    .or_message()
    .behind(Door::Open),
    op(SERVER, "get", "/", "The landing page", PAGE).behind(Door::Open),
    op(SERVER, "get", "/docs", "This document for people", PAGE).behind(Door::Open),
    op(SERVER, "get", "/openapi.json", "This document", &[(200, "Document", "The document")])
        .behind(Door::Open),
    op(SERVER, "get", "/healthz", "Whether the server lives", &[(200, "Health", "It does")])
        .behind(Door::Open),
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
    .behind(Door::Open),
    op(SERVER, "get", "/metrics", "Numbers for Prometheus", &[(200, "metrics", "Metrics")])
        .behind(Door::Local),
];
