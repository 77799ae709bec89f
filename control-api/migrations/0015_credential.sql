-- Keys of a workspace at vendors and services. The key and the address that it is sent to are encrypted together.
CREATE TABLE credential (
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (workspace, name)
);
