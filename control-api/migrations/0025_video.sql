-- Videos of texts and of sounds. status: QUEUED, PROCESSING (`server` works at it), STORING (its files are in the data folder of
-- `server` and go into the storage), COMPLETED, FAILED (see `error`), DELETING (copies are being removed).
-- document: the request, as JSON. secrets: the key of its webhooks, encrypted for `id`.
-- progress: per mille. draws: whether its picture was not drawn yet when the video was requested.
-- picture: the row of custom_avatar that it shows; NULL: a stock avatar as it is.
CREATE TABLE video (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    status TEXT NOT NULL,
    progress BIGINT NOT NULL DEFAULT 0,
    server TEXT NOT NULL DEFAULT '',
    has_audio BIGINT NOT NULL DEFAULT 0,
    picture TEXT,
    draws BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_attempt_at BIGINT NOT NULL DEFAULT 0,
    error TEXT,
    warnings TEXT NOT NULL DEFAULT '[]',
    format TEXT NOT NULL,
    bytes BIGINT NOT NULL DEFAULT 0,
    duration_ms BIGINT NOT NULL DEFAULT 0,
    width BIGINT NOT NULL,
    height BIGINT NOT NULL,
    has_captions BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT
);

CREATE INDEX video_page ON video (workspace, created_at, id);
-- What is to be done; also the number of videos in each status.
CREATE INDEX video_due ON video (status, server, next_attempt_at);
CREATE INDEX video_picture ON video (picture) WHERE picture IS NOT NULL;

-- Responses to requests with the header Idempotency-Key. request: SHA-256 of the request. response: encrypted for `resource`.
CREATE TABLE idempotency (
    workspace TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    resource TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (workspace, key)
);

CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX idempotency_resource ON idempotency (resource);
