-- Several servers on one database.

-- Requests about calls of other servers. A row lives for seconds.
-- state: new, taken (the target executes it), done (there is a reply), expired (never executed)
CREATE TABLE message (
    id TEXT PRIMARY KEY,
    sender TEXT NOT NULL,
    target TEXT NOT NULL,
    request TEXT NOT NULL,
    reply TEXT,
    state TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX message_target ON message (target, state);

-- Until when an offer that `server` has accepted may still connect, in µs by the database's clock.
-- Meanwhile no other server accepts an offer of this conversation.
ALTER TABLE conversation ADD COLUMN claimed_until BIGINT NOT NULL DEFAULT 0;
