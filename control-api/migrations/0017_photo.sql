-- Photo avatars. `source` is now what remains of the photo: the crop that the avatar is drawn from, with its landmarks, encrypted.
-- Whether it stays when the avatar is finished, and when and with which key (its id) the person's consent was given.
ALTER TABLE custom_avatar ADD COLUMN keep_source BIGINT NOT NULL DEFAULT 0;
ALTER TABLE custom_avatar ADD COLUMN consent_at BIGINT;
ALTER TABLE custom_avatar ADD COLUMN consent_key TEXT;
