//! Operations on agents and their resources, one row each. Those on conversations and the server
//! are in [`super::conversation_operations`].

use super::operation::{
    AGENTS, AVATARS, Body, DONE, GUARDRAILS, KNOWLEDGE, MCP, Operation, TEMPLATES, TOOLS, op,
};

const MADE: &[(u16, &str, &str)] = &[(201, "Done", "Made")];

/// All rows of this file.
pub(super) const OPERATIONS: &[Operation] = &[
    op(
        AGENTS,
        "post",
        "/v1/ext/agent",
        "Make an agent",
        &[(200, "Created", "Made; the webhook secret is told only here")],
    )
    .takes("AgentBody")
    .counted(),
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
        .takes("ShortAgent")
        .counted(),
    op(
        AGENTS,
        "post",
        "/v1/ext/agentbytemplate",
        "Make an agent of a template",
        &[(200, "Created", "Made"), (500, "Error", "The template or an avatar cannot be fetched")],
    )
    .takes("AgentByTemplate")
    .counted(),
    op(TEMPLATES, "post", "/v1/ext/template", "Make a template", MADE).takes("TemplateBody").counted(),
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
        "Make a custom avatar: of a character, which is drawn, or of a picture",
        &[(200, "CustomAvatar", "The job is queued")],
    )
    .takes("CustomAvatarBody")
    .counted(),
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
        &[(200, "CustomAvatar", "The custom avatar; agents may name it once it has an output")],
    )
    .or_message(),
    op(AVATARS, "delete", "/v2/custom-avatar/{id}", "Delete a custom avatar", DONE).or_message(),
    op(
        AVATARS,
        "get",
        "/v2/character",
        "What may be set of a drawn person, and people to begin with",
        &[(200, "CharacterSheet", "Settings with their ranges, people, visemes")],
    ),
    op(
        AVATARS,
        "post",
        "/v2/character/preview",
        "Draw a person in a pose; a newer request of the same key takes the place of one that waits",
        &[
            (200, "webp", "The picture"),
            (409, "Error", "A newer one was asked for"),
            (503, "NoCapacity", "There is no time for it now"),
        ],
    )
    .takes("Preview"),
    op(GUARDRAILS, "post", "/v1/ext/guardrail", "Make a guardrail", MADE).takes("GuardrailBody").counted(),
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
    op(TOOLS, "post", "/v1/ext/tool", "Make a tool", MADE).takes("ToolBody").counted(),
    op(TOOLS, "get", "/v1/ext/tool", "List tools", &[(200, "[Tool]", "Tools")]).list(),
    op(TOOLS, "get", "/v1/ext/tool/{id}", "Read a tool", &[(200, "Tool", "The tool")]).or_message(),
    op(TOOLS, "put", "/v1/ext/tool/{id}", "Replace a tool", DONE).takes("ToolBody").or_message(),
    op(TOOLS, "delete", "/v1/ext/tool/{id}", "Delete a tool", DONE).or_message(),
    op(MCP, "post", "/v1/ext/mcp", "Make an MCP configuration", &[(200, "McpMade", "Made")])
        .takes("McpBody")
        .counted(),
    op(MCP, "get", "/v1/ext/mcp", "List MCP configurations", &[(200, "[Mcp]", "MCP configurations")]).list(),
    op(MCP, "get", "/v1/ext/mcp/{id}", "Read an MCP configuration", &[(200, "Mcp", "The MCP configuration")])
        .or_error(),
    op(MCP, "put", "/v1/ext/mcp/{id}", "Replace an MCP configuration", &[(200, "Mcp", "As it is now")])
        .takes("McpBody")
        .or_error(),
    op(MCP, "delete", "/v1/ext/mcp/{id}", "Delete an MCP configuration", &[(204, "", "Deleted")]).or_error(),
    op(KNOWLEDGE, "post", "/v1/ext/kb", "Make a knowledge base of documents", DONE)
        .body(Body::Form("KnowledgeForm"))
        .counted(),
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
    .or_message()
    .counted(),
    op(KNOWLEDGE, "delete", "/v1/ext/kb/doc/{id}", "Delete a document", DONE).or_message(),
];
