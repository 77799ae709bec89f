//! The description of an operation, and the functions that build a row of the table.

use crate::scope::Scope;

/// Authentication of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    ApiKey,
    SessionToken,
    /// This machine; other clients with the metrics token.
    LocalOrMetricsToken,
    Public,
}

/// The request body; the names are those of schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    Json(&'static str),
    Form(&'static str),
    /// JSON, or a form of the second schema.
    JsonOrForm(&'static str, &'static str),
    Sdp,
    Trickle,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) tag: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) auth: Auth,
    /// Scope that an API key needs, if the operation takes one: `get` needs [`Scope::Read`], all
    /// others need [`Scope::Administer`] unless the row sets a lower one.
    pub(crate) scope: Scope,
    /// Whether it is a list with filters.
    pub(crate) list: bool,
    /// Whether the list has a filter for the language.
    pub(crate) by_language: bool,
    /// Whether it creates something that counts toward a limit of the workspace.
    pub(crate) workspace_limited: bool,
    /// Whether it honours the header `Idempotency-Key`.
    pub(crate) idempotent: bool,
    pub(crate) body: Body,
    /// Status, schema (`""` = no body; `text`, `html`, `sdp`, `wav`, `webm` and `webp`
    /// = this format), meaning.
    /// Errors common to all operations are added.
    pub(crate) responses: &'static [(u16, &'static str, &'static str)],
    /// Schema of its 404.
    pub(crate) not_found_schema: Option<&'static str>,
}

pub(crate) const fn op(
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
        by_language: false,
        workspace_limited: false,
        idempotent: false,
        body: Body::None,
        responses,
        not_found_schema: None,
    }
}

impl Operation {
    pub(crate) const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    /// A list with the filter `language`, too.
    pub(crate) const fn list_by_language(mut self) -> Self {
        self.list = true;
        self.by_language = true;
        self
    }

    pub(crate) const fn json_body(mut self, schema: &'static str) -> Self {
        self.body = Body::Json(schema);
        self
    }

    pub(crate) const fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// 404 with `message`.
    pub(crate) const fn not_found_message(mut self) -> Self {
        self.not_found_schema = Some("Message");
        self
    }

    /// 404 with `error`.
    pub(crate) const fn not_found_error(mut self) -> Self {
        self.not_found_schema = Some("Error");
        self
    }

    /// A limit of the workspace may reject it.
    pub(crate) const fn workspace_limited(mut self) -> Self {
        self.workspace_limited = true;
        self
    }

    /// A client may repeat it with the same `Idempotency-Key`.
    pub(crate) const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// [`Scope::Operate`] is sufficient.
    pub(crate) const fn operate_scope(mut self) -> Self {
        self.scope = Scope::Operate;
        self
    }

    pub(crate) const fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }
}

/// The response of an operation that returns no data.
pub(crate) const DONE_RESPONSE: &[(u16, &str, &str)] = &[(200, "Done", "Done")];

// Groups of operations.
pub(crate) const AGENTS: &str = "Agents";
pub(crate) const TEMPLATES: &str = "Templates";
pub(crate) const AVATARS: &str = "Avatars";
pub(crate) const GUARDRAILS: &str = "Guardrails";
pub(crate) const TOOLS: &str = "Tools";
pub(crate) const MCP: &str = "MCP configurations";
pub(crate) const KNOWLEDGE: &str = "Knowledge bases";
pub(crate) const CONVERSATIONS: &str = "Conversations";
pub(crate) const CONTROL: &str = "Control of a conversation";
pub(crate) const WEBHOOKS: &str = "Webhooks";
pub(crate) const KEYS: &str = "API keys";
pub(crate) const PROVIDERS: &str = "Providers";
pub(crate) const VIDEOS: &str = "Videos";
pub(crate) const JOINING: &str = "Joining";
pub(crate) const SERVER: &str = "Server";
