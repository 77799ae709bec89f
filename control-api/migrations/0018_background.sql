-- Backgrounds of avatars. A row with `base_avatar` is no avatar of its own: it is that avatar in front of `background` (JSON, encrypted if
-- it contains a picture, whose SHA-256 is `image_hash`). All agents of a workspace that want the same share the row with its `content_key`.
ALTER TABLE custom_avatar ADD COLUMN base_avatar TEXT;
ALTER TABLE custom_avatar ADD COLUMN background TEXT;
ALTER TABLE custom_avatar ADD COLUMN content_key TEXT;
ALTER TABLE custom_avatar ADD COLUMN image_hash TEXT;
CREATE UNIQUE INDEX custom_avatar_content ON custom_avatar (workspace, content_key);

-- The row that an agent's calls show when it is drawn, and the finished one that they show until then.
ALTER TABLE agent ADD COLUMN background TEXT;
ALTER TABLE agent ADD COLUMN shown_background TEXT;
CREATE INDEX agent_background ON agent (workspace, background) WHERE background IS NOT NULL;
CREATE INDEX agent_shown_background ON agent (workspace, shown_background) WHERE shown_background IS NOT NULL;
