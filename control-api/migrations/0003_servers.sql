-- Servers that share this database. What belongs to one whose lease has run out is anybody's.
CREATE TABLE server (
    id TEXT PRIMARY KEY,
    lease_until BIGINT NOT NULL
);

-- Which server delivers it.
ALTER TABLE delivery ADD COLUMN server TEXT NOT NULL DEFAULT '';
