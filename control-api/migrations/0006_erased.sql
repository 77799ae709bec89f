-- Conversations that are erased and whose files may still lie in a server's data folder. That server removes them, then the row.
CREATE TABLE erased (
    server TEXT NOT NULL,
    conversation TEXT NOT NULL,
    PRIMARY KEY (server, conversation)
);

-- Whether its conversation is erased: then it is kept only until it is settled.
ALTER TABLE delivery ADD COLUMN erased BIGINT NOT NULL DEFAULT 0;

-- What is tried again, by when.
CREATE INDEX delivery_again ON delivery (server, next_try) WHERE state = 'pending' AND first_try IS NOT NULL;
