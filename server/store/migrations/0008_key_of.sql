-- What was made with an API key ends with it, so it names the key; 0: none, it was
-- made on the server's machine. Of sessions and links that are open nobody knows
-- the key: they end now, and people sign in again.
DELETE FROM sessions;
DELETE FROM login_links;
ALTER TABLE sessions ADD COLUMN key_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE login_links ADD COLUMN key_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN key_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN updated_kind TEXT NOT NULL DEFAULT '';
UPDATE schedules SET updated_kind = creator_kind;

-- What went wrong was kept with the whole address, whose path is a secret.
UPDATE notices SET detail = 'the request failed' WHERE detail LIKE '%://%';
