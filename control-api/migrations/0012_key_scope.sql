-- What a key may do: read, operate or administer. When it was last used, to the minute.
ALTER TABLE api_key ADD COLUMN scope TEXT NOT NULL DEFAULT 'administer';
ALTER TABLE api_key ADD COLUMN last_used_at BIGINT;
