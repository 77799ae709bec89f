-- Suits SQLite and PostgreSQL both: TEXT, BIGINT, BLOB-free (sealed secrets are base64 TEXT), no automatic numbers.
-- Every row carries its workspace. Times are microseconds since the Unix epoch.

-- What the server remembers of itself: the demo agent's id.
CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE workspace (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE api_key (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);

CREATE TABLE agent (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    stopped BIGINT NOT NULL DEFAULT 0,
    calls BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX agent_page ON agent (workspace, created_at, id);

CREATE TABLE tool (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX tool_page ON tool (workspace, created_at, id);

CREATE TABLE kb (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX kb_page ON kb (workspace, created_at, id);

CREATE TABLE kb_document (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    kb TEXT NOT NULL,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    error_message TEXT,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX kb_document_of ON kb_document (kb, position);

CREATE TABLE conversation (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    server TEXT NOT NULL,
    agent TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    agent_document TEXT NOT NULL,
    agent_secrets TEXT NOT NULL,
    avatar_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    type TEXT,
    search TEXT NOT NULL,
    user_id TEXT,
    user_name TEXT,
    context TEXT,
    visitor BIGINT NOT NULL DEFAULT 0,
    meta_data TEXT,
    status TEXT NOT NULL,
    end_reason TEXT,
    rating BIGINT,
    feedback TEXT,
    warnings TEXT,
    record TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    joined_at BIGINT,
    ended_at BIGINT
);
CREATE INDEX conversation_page ON conversation (workspace, created_at, id);
CREATE INDEX conversation_status ON conversation (status, created_at);

-- Commands given before the join, in order.
CREATE TABLE command (
    conversation TEXT NOT NULL,
    position BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
);

-- The truth: what happened.
CREATE TABLE event (
    conversation TEXT NOT NULL,
    seq BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (conversation, seq)
);

-- The outbox: what must still be told, and what became of it. The body is frozen when the event is written.
CREATE TABLE delivery (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    event TEXT NOT NULL,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    first_try BIGINT,
    next_try BIGINT NOT NULL,
    reason TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX delivery_pending ON delivery (state, conversation, sequence);
CREATE INDEX delivery_of ON delivery (conversation, sequence);

-- One row for each try.
CREATE TABLE delivery_try (
    delivery TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    took_us BIGINT NOT NULL,
    status BIGINT,
    error TEXT,
    PRIMARY KEY (delivery, attempt)
);
