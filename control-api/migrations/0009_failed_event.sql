-- Events that the store refused alone, as text: the record lacks them, and nothing else waits for them.
CREATE TABLE failed_event (
    id TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    seq BIGINT NOT NULL,
    failed_at BIGINT NOT NULL,
    json TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX failed_event_conversation ON failed_event (conversation);
