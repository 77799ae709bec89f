//! The description of an operation, and the functions that build a row of the table.

use crate::scope::Scope;

/// Authentication of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Key,
    Token,
    /// This machine; other clients with the metrics token.
    Local,
    Open,
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
    pub(super) door: Door,
    /// Scope that an API key needs, if the operation takes one: `get` needs [`Scope::Read`], all
    /// others need [`Scope::Administer`] unless the row sets a lower one.
    pub(super) scope: Scope,
    /// Whether it is a list with filters.
    pub(super) list: bool,
    /// Whether it creates something that counts towards a limit of the workspace.
    pub(super) counted: bool,
    pub(super) body: Body,
    /// Status, schema (`""` = no body; `text`, `html`, `sdp` and `webp` = this format), meaning.
    /// Errors common to all operations are added.
    pub(super) answers: &'static [(u16, &'static str, &'static str)],
    /// Schema of its 404.
    pub(super) missing: Option<&'static str>,
}

pub(super) const fn op(
    tag: &'static str,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    answers: &'static [(u16, &'static str, &'static str)],
) -> Operation {
    Operation {
        tag,
        method,
        path,
        summary,
        door: Door::Key,
        scope: if matches!(method.as_bytes(), b"get") { Scope::Read } else { Scope::Administer },
        list: false,
        counted: false,
        body: Body::None,
        answers,
        missing: None,
    }
}

impl Operation {
    pub(super) const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    pub(super) const fn takes(mut self, schema: &'static str) -> Self {
        self.body = Body::Json(schema);
        self
    }

    pub(super) const fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// 404 with `message`.
    pub(super) const fn or_message(mut self) -> Self {
        self.missing = Some("Message");
        self
    }

    /// 404 with `error`.
    pub(super) const fn or_error(mut self) -> Self {
        self.missing = Some("Error");
        self
    }

    /// A limit of the workspace may reject it.
    pub(super) const fn counted(mut self) -> Self {
        self.counted = true;
        self
    }

    /// [`Scope::Operate`] is sufficient.
    pub(super) const fn operates(mut self) -> Self {
        self.scope = Scope::Operate;
        self
    }

    pub(super) const fn behind(mut self, door: Door) -> Self {
        self.door = door;
        self
    }
}

/// The response of an operation that returns no data.
pub(super) const DONE: &[(u16, &str, &str)] = &[(200, "Done", "Done")];

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
