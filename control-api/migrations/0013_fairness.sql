-- When each workspace last had its turn, by kind of work: a number that rises with each turn of that kind.
CREATE TABLE had_turn (
    kind TEXT NOT NULL,
    workspace TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (kind, workspace)
);

-- How many conversations were made on a day (days since the Unix epoch, UTC), those included that were erased since.
ALTER TABLE workspace ADD COLUMN made_on BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workspace ADD COLUMN made BIGINT NOT NULL DEFAULT 0;
