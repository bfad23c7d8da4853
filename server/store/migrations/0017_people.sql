-- Sessions have a role, and can be listed and ended one by one. Of those that are open
-- nobody knows a role: they end now, and people sign in again.
DROP TABLE login_links;
DROP TABLE sessions;
CREATE TABLE login_links (
  hash       BLOB   NOT NULL PRIMARY KEY,
  actor      TEXT   NOT NULL,
  role       TEXT   NOT NULL,
  via        TEXT   NOT NULL,
  key_id     BIGINT NOT NULL, -- of the key that made it, or 0
  life       BIGINT NOT NULL, -- of its session, at most
  idle       BIGINT NOT NULL, -- how long its session lasts without a visit
  expires_at BIGINT NOT NULL
);
CREATE TABLE sessions (
  id         INTEGER NOT NULL PRIMARY KEY,
  hash       BLOB   NOT NULL,
  actor      TEXT   NOT NULL,
  role       TEXT   NOT NULL,
  via        TEXT   NOT NULL,
  key_id     BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  idle       BIGINT NOT NULL,
  address    TEXT   NOT NULL,
  browser    TEXT   NOT NULL
);
CREATE UNIQUE INDEX sessions_hash ON sessions (hash);
