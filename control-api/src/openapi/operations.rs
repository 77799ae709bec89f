//! Every operation: one row each.

use super::operation::{
    AGENTS, AVATARS, Body, CONTROL, CONVERSATIONS, Door, GUARDRAILS, JOINING, KEYS, KNOWLEDGE, MCP,
    Operation, SERVER, TEMPLATES, TOOLS, WEBHOOKS, op,
};

const DONE: &[(u16, &str, &str)] = &[(200, "Done", "Done")];
const MADE: &[(u16, &str, &str)] = &[(201, "Done", "Made")];
const TOLD: &[(u16, &str, &str)] = &[
    (200, "Message", "Done"),
    (409, "Error", "Not in this state"),
    (503, "NoCapacity", "The call is held by another server; Retry-After says when to come back"),
];
const PAGE: &[(u16, &str, &str)] = &[(200, "html", "A page")];

/// All of them.
pub(super) const OPERATIONS: &[Operation] = &[
    op(
        AGENTS,
        "post",
        "/v1/ext/agent",
        "Make an agent",
        &[(200, "Created", "Made; the webhook secret is told only here")],
    )
    .takes("AgentBody"),
    op(AGENTS, "get", "/v1/ext/agent", "List agents, newest first", &[(200, "[Agent]", "Agents")]).list(),
    op(AGENTS, "get", "/v1/ext/agent/{id}", "Read an agent", &[(200, "Agent", "The agent")]).or_message(),
    op(AGENTS, "put", "/v1/ext/agent/{id}", "Replace an agent", DONE).takes("AgentBody").or_message(),
    op(AGENTS, "patch", "/v1/ext/agent/{id}", "Change an agent (JSON Merge Patch)", DONE)
        .takes("Patch")
        .or_message(),
    op(AGENTS, "delete", "/v1/ext/agent/{id}", "Delete an agent; its conversations stay", DONE).or_message(),
    op(
        AGENTS,
        "post",
        "/v1/ext/agent/{id}/webhook-secret",
        "Renew the webhook secret",
        &[(200, "Created", "Renewed")],
    )
    .or_message(),
    op(AGENTS, "post", "/v1/agent/api", "Make an agent, short form", &[(200, "Created", "Made")])
        .takes("ShortAgent"),
    op(
        AGENTS,
        "post",
        "/v1/ext/agentbytemplate",
        "Make an agent of a template",
        &[(200, "Created", "Made"), (500, "Error", "The template or an avatar cannot be fetched")],
    )
    .takes("AgentByTemplate"),
    op(TEMPLATES, "post", "/v1/ext/template", "Make a template", MADE).takes("TemplateBody"),
    op(
        TEMPLATES,
        "get",
        "/v1/ext/templates",
        "List templates, newest first",
        &[(200, "[Template]", "Templates")],
    )
    .list(),
    op(TEMPLATES, "get", "/v1/ext/template/{id}", "Read a template", &[(200, "Template", "The template")])
        .or_message(),
    op(TEMPLATES, "put", "/v1/ext/template/{id}", "Replace a template", DONE)
        .takes("TemplateBody")
        .or_message(),
    op(TEMPLATES, "delete", "/v1/ext/template/{id}", "Delete a template", DONE).or_message(),
    op(AVATARS, "get", "/v1/ext/avatars", "List stock avatars", &[(200, "[StockAvatar]", "Avatars")]).list(),
    op(
        AVATARS,
        "post",
        "/v2/custom-avatar",
        "Make a custom avatar of a picture",
        &[(200, "CustomAvatar", "The job is queued")],
    )
    .takes("CustomAvatarBody"),
    op(
        AVATARS,
        "get",
        "/v2/custom-avatars",
        "List custom avatars, newest first",
        &[(200, "[CustomAvatar]", "Custom avatars")],
    )
    .list(),
    op(
        AVATARS,
        "get",
        "/v2/custom-avatar/{id}",
        "Read a custom avatar and its job's state",
        &[(200, "CustomAvatar", "The custom avatar")],
    )
    .or_message(),
    op(AVATARS, "delete", "/v2/custom-avatar/{id}", "Delete a custom avatar", DONE).or_message(),
    op(GUARDRAILS, "post", "/v1/ext/guardrail", "Make a guardrail", MADE).takes("GuardrailBody"),
    op(GUARDRAILS, "get", "/v1/ext/guardrail", "List guardrails", &[(200, "[Guardrail]", "Guardrails")])
        .list(),
    op(GUARDRAILS, "get", "/v1/ext/guardrail/{id}", "Read a guardrail", &[(200, "Guardrail", "It")])
        .or_message(),
    op(GUARDRAILS, "put", "/v1/ext/guardrail/{id}", "Replace a guardrail; its key stays", DONE)
        .takes("GuardrailBody")
        .or_message(),
    op(
        GUARDRAILS,
        "delete",
        "/v1/ext/guardrail/{id}",
        "Delete a guardrail; references stay and are skipped",
        DONE,
    )
    .or_message(),
    op(TOOLS, "post", "/v1/ext/tool", "Make a tool", MADE).takes("ToolBody"),
    op(TOOLS, "get", "/v1/ext/tool", "List tools", &[(200, "[Tool]", "Tools")]).list(),
    op(TOOLS, "get", "/v1/ext/tool/{id}", "Read a tool", &[(200, "Tool", "The tool")]).or_message(),
    op(TOOLS, "put", "/v1/ext/tool/{id}", "Replace a tool", DONE).takes("ToolBody").or_message(),
    op(TOOLS, "delete", "/v1/ext/tool/{id}", "Delete a tool", DONE).or_message(),
    op(MCP, "post", "/v1/ext/mcp", "Make an MCP configuration", &[(200, "McpMade", "Made")]).takes("McpBody"),
    op(MCP, "get", "/v1/ext/mcp", "List MCP configurations", &[(200, "[Mcp]", "MCP configurations")]).list(),
    op(MCP, "get", "/v1/ext/mcp/{id}", "Read an MCP configuration", &[(200, "Mcp", "The MCP configuration")])
        .or_error(),
    op(MCP, "put", "/v1/ext/mcp/{id}", "Replace an MCP configuration", &[(200, "Mcp", "As it is now")])
        .takes("McpBody")
        .or_error(),
    op(MCP, "delete", "/v1/ext/mcp/{id}", "Delete an MCP configuration", &[(204, "", "Deleted")]).or_error(),
    op(KNOWLEDGE, "post", "/v1/ext/kb", "Make a knowledge base of documents", DONE)
        .body(Body::Form("KnowledgeForm")),
    op(
        KNOWLEDGE,
        "get",
        "/v1/ext/kbs",
        "List knowledge bases, newest first",
        &[(200, "[KnowledgeBase]", "Knowledge bases")],
    )
    .list(),
    op(
        KNOWLEDGE,
        "get",
        "/v1/ext/kb/{id}",
        "Read a knowledge base and the state of its documents",
        &[(200, "KnowledgeBaseWithDocuments", "The knowledge base")],
    )
    .or_message(),
    op(KNOWLEDGE, "put", "/v1/ext/kb/{id}", "Rename a knowledge base", DONE)
        .takes("KnowledgeBody")
        .or_message(),
    op(KNOWLEDGE, "delete", "/v1/ext/kb/{id}", "Delete a knowledge base with its documents", DONE)
        .or_message(),
    op(
        KNOWLEDGE,
        "post",
        "/v1/ext/kb/{id}/doc",
        "Add a document",
        &[(200, "Added", "Added; it is read in the background")],
    )
    .body(Body::Form("DocumentForm"))
    .or_message(),
    op(KNOWLEDGE, "delete", "/v1/ext/kb/doc/{id}", "Delete a document", DONE).or_message(),
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
    .or_message(),
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
    .or_message(),
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
    .or_error(),
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
    .or_error(),
    op(
        CONVERSATIONS,
        "post",
        "/v1/ext/externalmeeting",
        "Send an agent into a meeting",
        &[(502, "text", "The meeting service does not take the agent")],
    )
    .takes("Meeting")
    .or_message(),
    op(CONTROL, "put", "/v1/conversation/{id}/speak", "Let the agent say this", TOLD)
        .takes("Speak")
        .or_error(),
    op(CONTROL, "post", "/v1/conversation/{id}/interrupt", "Stop the agent's speech", TOLD).or_error(),
    op(
        CONTROL,
        "post",
        "/v1/conversation/{id}/respond",
        "Let the agent answer this as if the user had said it",
        TOLD,
    )
    .takes("Respond")
    .or_error(),
    op(CONTROL, "post", "/v1/conversation/{id}/context", "Tell the agent more", TOLD)
        .takes("Context")
        .or_error(),
    op(
        CONTROL,
        "delete",
        "/v1/conversation/{id}",
        "End the call; its record stays",
        &[
            (200, "Ended", "Ended"),
            (409, "Error", "It has ended"),
            (503, "NoCapacity", "The call is held by another server"),
        ],
    )
    .or_error(),
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
        .takes("KeyBody"),
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
            (429, "Error", "Too many requests of this address"),
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
        &[(200, "Health", "It does"), (503, "Health", "It does not, and why")],
    )
    .behind(Door::Open),
    op(SERVER, "get", "/metrics", "Numbers for Prometheus", &[(200, "metrics", "Metrics")])
        .behind(Door::Local),
];
