//! Operations with which clients join calls, one row each.

use super::operation::{Auth, Body, JOINING, Operation, WEBHOOKS, op};

const PAGE_RESPONSE: &[(u16, &str, &str)] = &[(200, "html", "A page")];

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(
        JOINING,
        "post",
        "/rtc/{conversation_id}",
        "Offer a connection (WHIP)",
        &[
            (201, "sdp", "Answer"),
            (406, "Error", "The offer does not contain Opus"),
            (409, "Error", "The conversation has ended"),
            (429, "Error", "Too many offers"),
            (503, "NoCapacity", "No capacity, or a model of the agent is not installed"),
        ],
    )
    .body(Body::Sdp)
    .auth(Auth::SessionToken),
    op(
        JOINING,
        "patch",
        "/rtc/{conversation_id}/{resource}",
        "Send ICE candidates; they are optional",
        &[(204, "", "Accepted"), (409, "Error", "The conversation has ended")],
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
        "Offer a connection (RTVI)",
        &[
            (200, "Answer", "Answer"),
            (406, "Error", "The offer does not contain Opus"),
            (409, "Error", "The conversation has ended"),
            (429, "Error", "Too many offers"),
            (503, "NoCapacity", "No capacity, or a model of the agent is not installed"),
        ],
    )
    .json_body("Offer")
    .auth(Auth::SessionToken),
    op(
        JOINING,
        "patch",
        "/api/offer",
        "Send ICE candidates; they are optional",
        &[(200, "Taken", "Accepted"), (409, "Error", "The conversation has ended")],
    )
    .json_body("Candidates")
    .auth(Auth::SessionToken),
    op(JOINING, "get", "/join/{conversation_id}", "The page where a user joins", PAGE_RESPONSE)
        .auth(Auth::Public),
    op(
        JOINING,
        "post",
        "/v1/livekit/token",
        "Create a caller's token for a LiveKit room, as LiveKit's clients expect it of a token \
         endpoint",
        &[
            (201, "LiveKitAccess", "Created"),
            (409, "Error", "The agent is not active, or LiveKit is not configured"),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("LiveKitTokenBody")
    .not_found_message()
    .operate_scope()
    .workspace_limited(),
    op(
        JOINING,
        "post",
        "/embed/{agent_id}/token",
        "Create a visitor's token for a new LiveKit room with this agent",
        &[
            (201, "LiveKitAccess", "Created"),
            (403, "Error", "The agent does not allow this origin"),
            (409, "Error", "The agent is not active, or LiveKit is not configured"),
            (
                429,
                "Invalid",
                "Too many requests from this address, or a limit of the agent's workspace is \
                 reached",
            ),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("LiveKitTokenBody")
    .not_found_message()
    .auth(Auth::Public),
    op(
        WEBHOOKS,
        "post",
        "/v1/livekit/webhook",
        "Receive a webhook of the LiveKit server; its signature is the authentication",
        &[
            (200, "", "Received"),
            (400, "Error", "The event is malformed"),
            (401, "Error", "The signature is wrong"),
            (409, "Error", "LiveKit is not configured"),
        ],
    )
    .auth(Auth::Public),
    op(
        JOINING,
        "get",
        "/meet/{conversation_id}",
        "The page that is the agent's camera and voice in an external meeting",
        PAGE_RESPONSE,
    )
    .auth(Auth::Public),
    op(
        JOINING,
        "get",
        "/meet/{conversation_id}/audio",
        "A WebSocket with the audio of an external meeting, for meeting services without a page",
        &[
            (101, "", "The protocol of the conversation's meeting service follows"),
            (400, "Error", "The request is no WebSocket handshake"),
            (409, "Error", "The conversation has ended"),
            (503, "NoCapacity", "Another server runs the call, or there is no capacity"),
        ],
    )
    .not_found_error()
    .auth(Auth::SessionToken),
    op(
        JOINING,
        "get",
        "/join/{conversation_id}/about",
        "Read what the page shows of its conversation before the offer",
        &[
            (200, "About", "The agent's name, and the status"),
            (409, "Error", "The conversation has ended"),
        ],
    )
    .auth(Auth::SessionToken),
    op(JOINING, "get", "/embed/{agent_id}", "An agent's page for an iframe", PAGE_RESPONSE)
        .not_found_message()
        .auth(Auth::Public),
    op(
        JOINING,
        "post",
        "/embed/{agent_id}",
        "Create a conversation for that page",
        &[
            (200, "Pass", "Created"),
            (403, "Error", "The agent does not allow this origin"),
            (409, "Error", "The agent is not active"),
            (
                429,
                "Invalid",
                "Too many requests from this address, or a limit of the agent's workspace is \
                 reached",
            ),
            (503, "NoCapacity", "The server accepts no new calls"),
        ],
    )
    .json_body("EmbedBody")
    .not_found_message()
    .auth(Auth::Public),
];
