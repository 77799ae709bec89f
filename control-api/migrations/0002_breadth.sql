-- Templates, guardrails, MCP configurations: documents as agents are; a guardrail's key is unique in its workspace for good.

CREATE TABLE template (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX template_page ON template (workspace, created_at, id);

CREATE TABLE guardrail (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    slug TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (workspace, slug)
);
CREATE INDEX guardrail_page ON guardrail (workspace, created_at, id);

CREATE TABLE mcp (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX mcp_page ON mcp (workspace, created_at, id);

-- A job that makes a face of a picture. The picture is kept until the job is over.
CREATE TABLE custom_avatar (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    job_id TEXT NOT NULL,
    name TEXT NOT NULL,
    gender TEXT NOT NULL,
    is_private BIGINT NOT NULL,
    source TEXT,
    status TEXT NOT NULL,
    output TEXT,
    error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX custom_avatar_page ON custom_avatar (workspace, created_at, id);
CREATE INDEX custom_avatar_status ON custom_avatar (status, created_at);

-- A dead letter that is sent again begins its schedule anew; its earlier tries stay in the log.
ALTER TABLE delivery ADD COLUMN tries_before BIGINT NOT NULL DEFAULT 0;
CREATE INDEX delivery_page ON delivery (workspace, state, created_at, id);

-- A file that must still be read, in base64; gone when it was.
ALTER TABLE kb_document ADD COLUMN source TEXT;
CREATE INDEX kb_document_status ON kb_document (status, created_at);
