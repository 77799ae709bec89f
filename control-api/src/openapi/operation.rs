//! The description of an operation, and the functions that build a row of the table.

use crate::scope::Scope;

/// Authentication of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    ApiKey,
    SessionToken,
    /// This machine; other clients with the metrics token.
    LocalOrMetricsToken,
    Public,
}

/// The request body; the names are those of schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Json(&'static str),
    Form(&'static str),
    Sdp,
    Trickle,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) tag: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) auth: Auth,
    /// Scope that an API key needs, if the operation takes one: `get` needs [`Scope::Read`], all
    /// others need [`Scope::Administer`] unless the row sets a lower one.
    pub(super) scope: Scope,
    /// Whether it is a list with filters.
    pub(super) list: bool,
    /// Whether it creates something that counts towards a limit of the workspace.
    pub(super) workspace_limited: bool,
    pub(super) body: Body,
    /// Status, schema (`""` = no body; `text`, `html`, `sdp` and `webp` = this format), meaning.
    /// Errors common to all operations are added.
    pub(super) responses: &'static [(u16, &'static str, &'static str)],
    /// Schema of its 404.
    pub(super) not_found_schema: Option<&'static str>,
}

pub(super) const fn op(
    tag: &'static str,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    responses: &'static [(u16, &'static str, &'static str)],
) -> Operation {
    Operation {
        tag,
        method,
        path,
        summary,
        auth: Auth::ApiKey,
        scope: if matches!(method.as_bytes(), b"get") { Scope::Read } else { Scope::Administer },
        list: false,
        workspace_limited: false,
        body: Body::None,
        responses,
        not_found_schema: None,
    }
}

impl Operation {
    pub(super) const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    pub(super) const fn json_body(mut self, schema: &'static str) -> Self {
        self.body = Body::Json(schema);
        self
    }

    pub(super) const fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// 404 with `message`.
    pub(super) const fn not_found_message(mut self) -> Self {
        self.not_found_schema = Some("Message");
        self
    }

    /// 404 with `error`.
    pub(super) const fn not_found_error(mut self) -> Self {
        self.not_found_schema = Some("Error");
        self
    }

    /// A limit of the workspace may reject it.
    pub(super) const fn workspace_limited(mut self) -> Self {
        self.workspace_limited = true;
        self
    }

    /// [`Scope::Operate`] is sufficient.
    pub(super) const fn operate_scope(mut self) -> Self {
        self.scope = Scope::Operate;
        self
    }

    pub(super) const fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }
}

/// The response of an operation that returns no data.
pub(super) const DONE_RESPONSE: &[(u16, &str, &str)] = &[(200, "Done", "Done")];

// Groups of operations.
pub(super) const AGENTS: &str = "Agents";
pub(super) const TEMPLATES: &str = "Templates";
pub(super) const AVATARS: &str = "Avatars";
pub(super) const GUARDRAILS: &str = "Guardrails";
pub(super) const TOOLS: &str = "Tools";
pub(super) const MCP: &str = "MCP configurations";
pub(super) const KNOWLEDGE: &str = "Knowledge bases";
pub(super) const CONVERSATIONS: &str = "Conversations";
pub(super) const CONTROL: &str = "Control of a conversation";
pub(super) const WEBHOOKS: &str = "Webhooks";
pub(super) const KEYS: &str = "API keys";
pub(super) const JOINING: &str = "Joining";
pub(super) const SERVER: &str = "Server";
