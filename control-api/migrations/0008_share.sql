-- While a person is drawn the record holds poses of a part, better ones from time to time: how much of the person they show, in percent.
ALTER TABLE custom_avatar ADD COLUMN share BIGINT NOT NULL DEFAULT 0;
UPDATE custom_avatar SET share = 100 WHERE poses IS NOT NULL;
