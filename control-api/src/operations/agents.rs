//! Operations on agents and their resources, one row each. Those on conversations and the server
//! are in [`super::conversations`].

use super::operation::{
    AGENTS, AVATARS, Body, DONE_RESPONSE, GUARDRAILS, KNOWLEDGE, MCP, Operation, TEMPLATES, TOOLS,
    op,
};

const CREATED_RESPONSE: &[(u16, &str, &str)] = &[(201, "Done", "Created")];
/// A request with pictures of backgrounds waits for those of other requests.
const TOO_MANY_PICTURES: (u16, &str, &str) =
    (503, "NoCapacity", "Too many pictures are decoded at once");
const SAVED_RESPONSE: &[(u16, &str, &str)] = &[(200, "Done", "Done"), TOO_MANY_PICTURES];

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(
        AGENTS,
        "post",
        "/v1/ext/agent",
        "Create an agent",
        &[(200, "Created", "Created; the webhook secret is returned only once"), TOO_MANY_PICTURES],
    )
    .json_body("AgentBody")
    .workspace_limited(),
    op(AGENTS, "get", "/v1/ext/agent", "List agents, newest first", &[(200, "[Agent]", "Agents")])
        .list(),
    op(AGENTS, "get", "/v1/ext/agent/{id}", "Read an agent", &[(200, "Agent", "The agent")])
        .not_found_message(),
    op(AGENTS, "put", "/v1/ext/agent/{id}", "Replace an agent", SAVED_RESPONSE)
        .json_body("AgentBody")
        .workspace_limited()
        .not_found_message(),
    op(AGENTS, "patch", "/v1/ext/agent/{id}", "Change an agent (JSON Merge Patch)", SAVED_RESPONSE)
        .json_body("Patch")
        .workspace_limited()
        .not_found_message(),
    op(
        AGENTS,
        "delete",
        "/v1/ext/agent/{id}",
        "Delete an agent; its conversations are kept",
        DONE_RESPONSE,
    )
    .not_found_message(),
    op(
        AGENTS,
        "post",
        "/v1/ext/agent/{id}/webhook-secret",
        "Renew the webhook secret",
        &[(200, "Created", "Renewed")],
    )
    .not_found_message(),
    op(
        AGENTS,
        "post",
        "/v1/agent/api",
        "Create an agent, short form",
        &[(200, "Created", "Created")],
    )
    .json_body("ShortAgent")
    .workspace_limited(),
    op(
        AGENTS,
        "post",
        "/v1/ext/agentbytemplate",
        "Create an agent from a template",
        &[
            (200, "Created", "Created"),
            (500, "Error", "The template or an avatar cannot be fetched"),
        ],
    )
    .json_body("AgentByTemplate")
    .workspace_limited(),
    op(
        TEMPLATES,
        "post",
        "/v1/ext/template",
        "Create a template",
        &[(201, "Done", "Created"), TOO_MANY_PICTURES],
    )
    .json_body("TemplateBody")
    .workspace_limited(),
    op(
        TEMPLATES,
        "get",
        "/v1/ext/templates",
        "List templates, newest first",
        &[(200, "[Template]", "Templates")],
    )
    .list(),
    op(
        TEMPLATES,
        "get",
        "/v1/ext/template/{id}",
        "Read a template",
        &[(200, "Template", "The template")],
    )
    .not_found_message(),
    op(TEMPLATES, "put", "/v1/ext/template/{id}", "Replace a template", SAVED_RESPONSE)
        .json_body("TemplateBody")
        .workspace_limited()
        .not_found_message(),
    op(TEMPLATES, "delete", "/v1/ext/template/{id}", "Delete a template", DONE_RESPONSE)
        .not_found_message(),
    op(
        AVATARS,
        "get",
        "/v1/ext/avatars",
        "List stock avatars",
        &[(200, "[StockAvatar]", "Avatars")],
    )
    .list(),
    op(
        AVATARS,
        "post",
        "/v2/custom-avatar",
        "Create a custom avatar from a character, which is drawn, or from a picture",
        &[
            (200, "CustomAvatar", "The job is queued"),
            (400, "InvalidPhoto", "The photo cannot be used, or the body is not valid"),
            (503, "NoCapacity", "Too many pictures are checked, or the networks are not installed"),
        ],
    )
    .json_body("CustomAvatarBody")
    .workspace_limited(),
    op(
        AVATARS,
        "post",
        "/v2/custom-avatar/photo",
        "Find the face in a picture and show poses of an avatar from it; nothing is stored",
        &[
            (200, "PhotoPreview", "What was found, and the pictures"),
            (400, "InvalidPhoto", "The photo cannot be used, or the body is not valid"),
            (503, "NoCapacity", "Too many pictures are checked, or the networks are not installed"),
        ],
    )
    .json_body("PhotoPreviewBody"),
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
        &[(200, "CustomAvatar", "The custom avatar; agents can use it once it has an output")],
    )
    .not_found_message(),
    op(AVATARS, "delete", "/v2/custom-avatar/{id}", "Delete a custom avatar", DONE_RESPONSE)
        .not_found_message(),
    op(
        AVATARS,
        "get",
        "/v2/character",
        "Read the settings of a character, and example characters",
        &[(200, "CharacterSheet", "Settings with their ranges, example characters, visemes")],
    ),
    op(
        AVATARS,
        "post",
        "/v2/character/preview",
        "Draw a character in a pose; a newer request with the same API key replaces a waiting one",
        &[
            (200, "webp", "The picture"),
            (409, "Error", "A newer preview was requested"),
            (503, "NoCapacity", "The server has no CPU time for previews"),
        ],
    )
    .json_body("Preview"),
    op(GUARDRAILS, "post", "/v1/ext/guardrail", "Create a guardrail", CREATED_RESPONSE)
        .json_body("GuardrailBody")
        .workspace_limited(),
    op(
        GUARDRAILS,
        "get",
        "/v1/ext/guardrail",
        "List guardrails",
        &[(200, "[Guardrail]", "Guardrails")],
    )
    .list(),
    op(
        GUARDRAILS,
        "get",
        "/v1/ext/guardrail/{id}",
        "Read a guardrail",
        &[(200, "Guardrail", "A guardrail")],
    )
    .not_found_message(),
    op(
        GUARDRAILS,
        "put",
        "/v1/ext/guardrail/{id}",
        "Replace a guardrail; its key is kept",
        DONE_RESPONSE,
    )
    .json_body("GuardrailBody")
    .not_found_message(),
    op(
        GUARDRAILS,
        "delete",
        "/v1/ext/guardrail/{id}",
        "Delete a guardrail; references to it remain and are ignored",
        DONE_RESPONSE,
    )
    .not_found_message(),
    op(TOOLS, "post", "/v1/ext/tool", "Create a tool", CREATED_RESPONSE)
        .json_body("ToolBody")
        .workspace_limited(),
    op(TOOLS, "get", "/v1/ext/tool", "List tools", &[(200, "[Tool]", "Tools")]).list(),
    op(TOOLS, "get", "/v1/ext/tool/{id}", "Read a tool", &[(200, "Tool", "The tool")])
        .not_found_message(),
    op(TOOLS, "put", "/v1/ext/tool/{id}", "Replace a tool", DONE_RESPONSE)
        .json_body("ToolBody")
        .not_found_message(),
    op(TOOLS, "delete", "/v1/ext/tool/{id}", "Delete a tool", DONE_RESPONSE).not_found_message(),
    op(MCP, "post", "/v1/ext/mcp", "Create an MCP configuration", &[(200, "McpMade", "Created")])
        .json_body("McpBody")
        .workspace_limited(),
    op(
        MCP,
        "get",
        "/v1/ext/mcp",
        "List MCP configurations",
        &[(200, "[Mcp]", "MCP configurations")],
    )
    .list(),
    op(
        MCP,
        "get",
        "/v1/ext/mcp/{id}",
        "Read an MCP configuration",
        &[(200, "Mcp", "The MCP configuration")],
    )
    .not_found_error(),
    op(
        MCP,
        "put",
        "/v1/ext/mcp/{id}",
        "Replace an MCP configuration",
        &[(200, "Mcp", "The updated record")],
    )
    .json_body("McpBody")
    .not_found_error(),
    op(MCP, "delete", "/v1/ext/mcp/{id}", "Delete an MCP configuration", &[(204, "", "Deleted")])
        .not_found_error(),
    op(KNOWLEDGE, "post", "/v1/ext/kb", "Create a knowledge base from documents", DONE_RESPONSE)
        .body(Body::Form("KnowledgeForm"))
        .workspace_limited(),
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
    .not_found_message(),
    op(KNOWLEDGE, "put", "/v1/ext/kb/{id}", "Change the name and description", DONE_RESPONSE)
        .json_body("KnowledgeBody")
        .not_found_message(),
    op(
        KNOWLEDGE,
        "delete",
        "/v1/ext/kb/{id}",
        "Delete a knowledge base with its documents",
        DONE_RESPONSE,
    )
    .not_found_message(),
    op(
        KNOWLEDGE,
        "post",
        "/v1/ext/kb/{id}/doc",
        "Add a document",
        &[(200, "Added", "Added; it is processed in the background")],
    )
    .body(Body::Form("DocumentForm"))
    .not_found_message()
    .workspace_limited(),
    op(KNOWLEDGE, "delete", "/v1/ext/kb/doc/{id}", "Delete a document", DONE_RESPONSE)
        .not_found_message(),
];
