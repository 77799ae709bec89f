-- How the agent takes part in an external meeting, as JSON; NULL = no meeting.
ALTER TABLE conversation ADD COLUMN meeting TEXT;

-- The bots that meeting services run for conversations.
CREATE TABLE meeting (
    conversation TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    agent TEXT NOT NULL,
    -- The server that watches the bot.
    server TEXT NOT NULL,
    -- The service, and whose account it is: 'server' or 'workspace'.
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    -- The service's id; empty until it has answered.
    bot TEXT NOT NULL DEFAULT '',
    -- Identify the meeting.
    platform TEXT NOT NULL,
    code TEXT NOT NULL,
    -- Without passwords.
    url TEXT NOT NULL,
    status TEXT NOT NULL,
    detail TEXT,
    -- JSON: the names of the other people by their ids at the service.
    people TEXT NOT NULL DEFAULT '{}',
    -- When the agent entered, and since when nobody else is there; µs.
    entered_at BIGINT,
    alone_since BIGINT,
    -- 1 once the service has no bot any more.
    released BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX meeting_open ON meeting (server) WHERE released = 0;
CREATE INDEX meeting_bot ON meeting (provider, bot);
