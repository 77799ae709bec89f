-- Which process holds a call, and what the fleet shows of each server. A server of the release
-- before ignores these columns.

-- Number of the server's start. Each start has the next one.
ALTER TABLE server ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
-- Last renewal of the lease, in µs by the database's clock.
ALTER TABLE server ADD COLUMN renewed_at BIGINT NOT NULL DEFAULT 0;
-- What the server reported with it, as JSON: version, region, calls, load, state.
ALTER TABLE server ADD COLUMN report TEXT NOT NULL DEFAULT '{}';

-- The epoch of `server` that runs the call. 0 = none: the call was not joined, or was ended because
-- its server was lost. Events of any other epoch are rejected.
ALTER TABLE conversation ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
