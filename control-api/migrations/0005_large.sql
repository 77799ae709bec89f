-- Lists of many conversations. Which rows a page holds is read from this index alone: the rows themselves are long.
-- PostgreSQL's indexes hold 2700 bytes a row, so no more than the first 200 characters of each name are searched,
-- and a type is compared by its first 100 before it is compared as a whole.
UPDATE conversation SET search = SUBSTR(search, 1, 440);
DROP INDEX conversation_page;
CREATE INDEX conversation_page ON conversation (workspace, created_at, id, status, SUBSTR(type, 1, 100), search);

-- How many there are, which `X-Total-Count` tells with every page.
ALTER TABLE workspace ADD COLUMN conversations BIGINT NOT NULL DEFAULT 0;
UPDATE workspace SET conversations = (SELECT COUNT(*) FROM conversation WHERE conversation.workspace = workspace.id);

-- A user's earlier conversations, which an agent with memory reads when a call begins.
CREATE INDEX conversation_user ON conversation (agent, SUBSTR(user_id, 1, 100), created_at) WHERE user_id IS NOT NULL;

-- What retention erases.
CREATE INDEX conversation_ended ON conversation (ended_at) WHERE status = 'ENDED';
