-- Times are microseconds since 1970, UTC. Ids are time-ordered integers (id.go).
-- JSON is text. The subset is the one that PostgreSQL shares, but for the names of
-- two types: INTEGER is of 64 bits (as a primary key it is the row's own number in
-- SQLite, which saves an index), and BLOB is bytes.

CREATE TABLE deliveries (
  id                INTEGER NOT NULL PRIMARY KEY,
  factory           TEXT   NOT NULL,
  webhook           TEXT   NOT NULL,
  webhook_uid       TEXT   NOT NULL,
  outcome           TEXT   NOT NULL,
  reason            TEXT   NOT NULL,
  detail            TEXT   NOT NULL,
  size              BIGINT NOT NULL,
  received_at       BIGINT NOT NULL,
  identity_source   TEXT   NOT NULL,
  identity_value    TEXT   NOT NULL,
  identity_hash     BLOB,            -- of accepted ones alone
  duplicate_of      BIGINT NOT NULL, -- 0: none
  replay_of         BIGINT NOT NULL,
  client_addr       TEXT   NOT NULL,
  headers           TEXT   NOT NULL,
  apply_id          BIGINT NOT NULL,
  secret_generation BIGINT NOT NULL,
  payload           BLOB,            -- of accepted ones alone
  codec             BIGINT NOT NULL  -- 0: as it came, 1: S2
);
CREATE UNIQUE INDEX deliveries_identity ON deliveries (identity_hash);
CREATE INDEX deliveries_webhook ON deliveries (webhook_uid, id);

CREATE TABLE specs (
  hash BLOB NOT NULL PRIMARY KEY, -- SHA-256 of data
  data BLOB NOT NULL
);

CREATE TABLE runs (
  id               INTEGER NOT NULL PRIMARY KEY,
  factory          TEXT   NOT NULL,
  automation       TEXT   NOT NULL,
  source           TEXT   NOT NULL,
  title            TEXT   NOT NULL,
  creator_kind     TEXT   NOT NULL,
  creator_name     TEXT   NOT NULL,
  delivery_id      BIGINT NOT NULL, -- 0: none
  webhook          TEXT   NOT NULL,
  commit_hash      TEXT   NOT NULL,
  spec_hash        BLOB   NOT NULL,
  state            TEXT   NOT NULL,
  status_message   TEXT   NOT NULL,
  exit_code        BIGINT,
  attempt          BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,
  updated_at       BIGINT NOT NULL,
  started_at       BIGINT NOT NULL, -- 0: not yet
  finished_at      BIGINT NOT NULL,
  cancel_requested BIGINT NOT NULL,
  worker           TEXT   NOT NULL,
  lease_token      BIGINT NOT NULL,
  lease_until      BIGINT NOT NULL
);
CREATE INDEX runs_state ON runs (state, id);
CREATE INDEX runs_delivery ON runs (delivery_id);

CREATE TABLE run_events (
  run_id BIGINT NOT NULL,
  seq    BIGINT NOT NULL,
  at     BIGINT NOT NULL,
  kind   TEXT   NOT NULL,
  data   TEXT   NOT NULL,
  PRIMARY KEY (run_id, seq)
);

CREATE TABLE idempotency (
  key_hash   BLOB   NOT NULL PRIMARY KEY,
  body_hash  BLOB   NOT NULL,
  run_id     BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE secret_names (
  name       TEXT   NOT NULL PRIMARY KEY,
  generation BIGINT NOT NULL, -- the newest ever, also after a delete
  deleted    BIGINT NOT NULL
);
CREATE TABLE secrets (
  name       TEXT   NOT NULL,
  generation BIGINT NOT NULL,
  sealed     BLOB   NOT NULL,
  set_at     BIGINT NOT NULL,
  PRIMARY KEY (name, generation)
);

CREATE TABLE api_keys (
  id           INTEGER NOT NULL PRIMARY KEY,
  name         TEXT   NOT NULL,
  kind         TEXT   NOT NULL,
  owner        TEXT   NOT NULL,
  scopes       TEXT   NOT NULL,
  factory      TEXT   NOT NULL,
  hash         BLOB   NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL, -- 0: never
  revoked_at   BIGINT NOT NULL, -- 0: not
  last_used_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);

CREATE TABLE applies (
  id           INTEGER NOT NULL PRIMARY KEY,
  factory      TEXT   NOT NULL,
  repository   TEXT   NOT NULL,
  branch       TEXT   NOT NULL,
  commit_hash  TEXT   NOT NULL,
  author_name  TEXT   NOT NULL,
  author_email TEXT   NOT NULL,
  subject      TEXT   NOT NULL,
  commit_time  BIGINT NOT NULL,
  triggered_by TEXT   NOT NULL,
  outcome      TEXT   NOT NULL,
  error        TEXT   NOT NULL,
  plan         TEXT   NOT NULL,
  diagnostics  TEXT   NOT NULL,
  started_at   BIGINT NOT NULL,
  finished_at  BIGINT NOT NULL
);
CREATE INDEX applies_factory ON applies (factory, outcome, id);

CREATE TABLE blobs (
  hash BLOB NOT NULL PRIMARY KEY, -- SHA-256 of the content
  data BLOB NOT NULL              -- S2
);
CREATE TABLE apply_files (
  apply_id BIGINT NOT NULL,
  path     TEXT   NOT NULL,
  hash     BLOB   NOT NULL,
  PRIMARY KEY (apply_id, path)
);
CREATE TABLE apply_webhooks (
  apply_id    BIGINT NOT NULL,
  name        TEXT   NOT NULL,
  uid         TEXT   NOT NULL,
  secret_name TEXT   NOT NULL,
  generation  BIGINT NOT NULL,
  PRIMARY KEY (apply_id, name)
);
CREATE TABLE webhook_uids (
  factory TEXT NOT NULL,
  name    TEXT NOT NULL,
  uid     TEXT NOT NULL,
  PRIMARY KEY (factory, name)
);

CREATE TABLE audit (
  id      INTEGER NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL,
  actor   TEXT   NOT NULL,
  action  TEXT   NOT NULL,
  object  TEXT   NOT NULL,
  factory TEXT   NOT NULL,
  details TEXT   NOT NULL,
  origin  TEXT   NOT NULL
);

CREATE TABLE login_links (
  hash       BLOB   NOT NULL PRIMARY KEY,
  actor      TEXT   NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE TABLE sessions (
  hash       BLOB   NOT NULL PRIMARY KEY,
  actor      TEXT   NOT NULL,
  expires_at BIGINT NOT NULL
);
