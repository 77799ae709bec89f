-- Drawn people. What one is drawn from (JSON: character, rest, voice), which server draws it, how far that is (percent), and the pose set
-- that calls show, in base64: every server finds it here.
ALTER TABLE custom_avatar ADD COLUMN person TEXT;
ALTER TABLE custom_avatar ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE custom_avatar ADD COLUMN progress BIGINT NOT NULL DEFAULT 0;
ALTER TABLE custom_avatar ADD COLUMN poses TEXT;
