-- Recordings of calls. status: CAPTURED (the file of the call exists), FINISHED (the delivered file is in the data folder of `server`),
-- STORED (it is in the storage under `storage_key`), FAILED (see `error`), DELETING (copies are being removed), DELETED.
CREATE TABLE recording (
    conversation TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    server TEXT NOT NULL,
    status TEXT NOT NULL,
    storage_key TEXT NOT NULL DEFAULT '',
    format TEXT NOT NULL DEFAULT '',
    bytes BIGINT NOT NULL DEFAULT 0,
    duration_ms BIGINT NOT NULL DEFAULT 0,
    error TEXT,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_attempt_at BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- What is due, by server; also the number of recordings in each status.
CREATE INDEX recording_due ON recording (status, server, next_attempt_at);
