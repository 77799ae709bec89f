-- Until when a request of another server may be taken, in µs by the database's clock. A sender that
-- ends cannot mark it as expired.
ALTER TABLE message ADD COLUMN deadline BIGINT NOT NULL DEFAULT 0;
