-- How much of the person the pictures of a custom avatar, or of a variant, show, and their size in pixels. The photos of the release before
-- had two sizes.
ALTER TABLE custom_avatar ADD COLUMN framing TEXT NOT NULL DEFAULT 'close';
ALTER TABLE custom_avatar ADD COLUMN size TEXT NOT NULL DEFAULT '512x512';
UPDATE custom_avatar SET size = '1280x720' WHERE output LIKE '%"width":1280%';

-- The version of plan and renderer that drew the poses; 0 = that of a release before. An older one is drawn again in the background:
-- `renewing` is 1 while `server` draws it, and `failed_version` is the version that could not be drawn.
ALTER TABLE custom_avatar ADD COLUMN plan_version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE custom_avatar ADD COLUMN renewing BIGINT NOT NULL DEFAULT 0;
ALTER TABLE custom_avatar ADD COLUMN failed_version BIGINT NOT NULL DEFAULT 0;
CREATE INDEX custom_avatar_plan ON custom_avatar (plan_version) WHERE status = 'COMPLETED';
