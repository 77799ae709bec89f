-- Console sessions that were logged out before their cookie ends by itself.
CREATE TABLE ended_session (
    id TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);
