-- The schema that SQLite has after its migration 24, for PostgreSQL. TestSchemas compares the
-- tables and columns of both.
--
-- Text sorts by its bytes, as in SQLite. Indexes end with the id where SQLite's end with the
-- number of the row. The rows of run_groups are unique because there is one writer at a time; an
-- index of all their columns could not hold their longest values.

CREATE TABLE deliveries (
  id                BIGINT NOT NULL PRIMARY KEY,
  factory           TEXT COLLATE "C" NOT NULL,
  webhook           TEXT COLLATE "C" NOT NULL,
  webhook_uid       TEXT COLLATE "C" NOT NULL,
  outcome           TEXT COLLATE "C" NOT NULL,
  reason            TEXT COLLATE "C" NOT NULL,
  detail            TEXT COLLATE "C" NOT NULL,
  size              BIGINT NOT NULL,
  received_at       BIGINT NOT NULL,
  identity_source   TEXT COLLATE "C" NOT NULL,
  identity_value    TEXT COLLATE "C" NOT NULL,
  identity_hash     BYTEA, -- of accepted ones alone
  duplicate_of      BIGINT NOT NULL, -- 0: none
  replay_of         BIGINT NOT NULL,
  client_addr       TEXT COLLATE "C" NOT NULL,
  headers           TEXT COLLATE "C" NOT NULL,
  apply_id          BIGINT NOT NULL,
  secret_generation BIGINT NOT NULL,
  payload           BYTEA, -- of accepted ones alone
  codec             BIGINT NOT NULL, -- 0: as it came, 1: S2
  digest            BIGINT,
  test_by           TEXT COLLATE "C" NOT NULL DEFAULT ''
);
ALTER TABLE deliveries ALTER COLUMN payload SET STORAGE EXTERNAL; -- it is compressed already
CREATE UNIQUE INDEX deliveries_identity ON deliveries (identity_hash);
CREATE INDEX deliveries_webhook ON deliveries (webhook_uid, id);
CREATE TABLE specs (
  hash BYTEA NOT NULL PRIMARY KEY, -- SHA-256 of data
  data BYTEA NOT NULL
);
CREATE TABLE runs (
  id               BIGINT NOT NULL PRIMARY KEY,
  factory          TEXT COLLATE "C" NOT NULL,
  automation       TEXT COLLATE "C" NOT NULL,
  source           TEXT COLLATE "C" NOT NULL,
  title            TEXT COLLATE "C" NOT NULL,
  creator_kind     TEXT COLLATE "C" NOT NULL,
  creator_name     TEXT COLLATE "C" NOT NULL,
  delivery_id      BIGINT NOT NULL, -- 0: none
  webhook          TEXT COLLATE "C" NOT NULL,
  commit_hash      TEXT COLLATE "C" NOT NULL,
  spec_hash        BYTEA NOT NULL,
  state            TEXT COLLATE "C" NOT NULL,
  status_message   TEXT COLLATE "C" NOT NULL,
  exit_code        BIGINT,
  attempt          BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,
  updated_at       BIGINT NOT NULL,
  started_at       BIGINT NOT NULL, -- 0: not yet
  finished_at      BIGINT NOT NULL,
  cancel_requested BIGINT NOT NULL,
  worker           TEXT COLLATE "C" NOT NULL,
  lease_token      BIGINT NOT NULL,
  lease_until      BIGINT NOT NULL,
  group_id         BIGINT NOT NULL DEFAULT 0,
  parent_id        BIGINT NOT NULL DEFAULT 0,
  tokens           BIGINT NOT NULL DEFAULT 0,
  cost_micros      BIGINT NOT NULL DEFAULT 0,
  events           BIGINT,
  conversation_id  BIGINT NOT NULL DEFAULT 0,
  retry_of         BIGINT NOT NULL DEFAULT 0,
  run_at           BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX runs_delivery ON runs (delivery_id);
CREATE TABLE run_events (
  run_id BIGINT NOT NULL,
  seq    BIGINT NOT NULL,
  at     BIGINT NOT NULL,
  kind   TEXT COLLATE "C" NOT NULL,
  data   TEXT COLLATE "C" NOT NULL,
  digest BIGINT,
  PRIMARY KEY (run_id, seq)
);
CREATE TABLE idempotency (
  key_hash   BYTEA NOT NULL PRIMARY KEY,
  body_hash  BYTEA NOT NULL,
  run_id     BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE TABLE secret_names (
  name       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  generation BIGINT NOT NULL, -- the newest ever, also after a delete
  deleted    BIGINT NOT NULL
);
CREATE TABLE secrets (
  name       TEXT COLLATE "C" NOT NULL,
  generation BIGINT NOT NULL,
  sealed     BYTEA NOT NULL,
  set_at     BIGINT NOT NULL,
  PRIMARY KEY (name, generation)
);
CREATE TABLE api_keys (
  id           BIGINT NOT NULL PRIMARY KEY,
  name         TEXT COLLATE "C" NOT NULL,
  kind         TEXT COLLATE "C" NOT NULL,
  owner        TEXT COLLATE "C" NOT NULL,
  scopes       TEXT COLLATE "C" NOT NULL,
  factory      TEXT COLLATE "C" NOT NULL,
  hash         BYTEA NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL, -- 0: never
  revoked_at   BIGINT NOT NULL, -- 0: not
  last_used_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);
CREATE TABLE applies (
  id           BIGINT NOT NULL PRIMARY KEY,
  factory      TEXT COLLATE "C" NOT NULL,
  repository   TEXT COLLATE "C" NOT NULL,
  branch       TEXT COLLATE "C" NOT NULL,
  commit_hash  TEXT COLLATE "C" NOT NULL,
  author_name  TEXT COLLATE "C" NOT NULL,
  author_email TEXT COLLATE "C" NOT NULL,
  subject      TEXT COLLATE "C" NOT NULL,
  commit_time  BIGINT NOT NULL,
  triggered_by TEXT COLLATE "C" NOT NULL,
  outcome      TEXT COLLATE "C" NOT NULL,
  error        TEXT COLLATE "C" NOT NULL,
  plan         TEXT COLLATE "C" NOT NULL,
  diagnostics  TEXT COLLATE "C" NOT NULL,
  started_at   BIGINT NOT NULL,
  finished_at  BIGINT NOT NULL,
  digest       BIGINT
);
CREATE INDEX applies_factory ON applies (factory, outcome, id);
CREATE TABLE blobs (
  hash BYTEA NOT NULL PRIMARY KEY, -- SHA-256 of the content
  data BYTEA NOT NULL -- S2
);
CREATE TABLE apply_files (
  apply_id   BIGINT NOT NULL,
  path       TEXT COLLATE "C" NOT NULL,
  hash       BYTEA NOT NULL,
  executable BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (apply_id, path)
);
CREATE TABLE apply_webhooks (
  apply_id    BIGINT NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  uid         TEXT COLLATE "C" NOT NULL,
  secret_name TEXT COLLATE "C" NOT NULL,
  generation  BIGINT NOT NULL,
  PRIMARY KEY (apply_id, name)
);
CREATE TABLE webhook_uids (
  factory TEXT COLLATE "C" NOT NULL,
  name    TEXT COLLATE "C" NOT NULL,
  uid     TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (factory, name)
);
CREATE TABLE audit (
  id      BIGINT NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL,
  actor   TEXT COLLATE "C" NOT NULL,
  action  TEXT COLLATE "C" NOT NULL,
  object  TEXT COLLATE "C" NOT NULL,
  factory TEXT COLLATE "C" NOT NULL,
  details TEXT COLLATE "C" NOT NULL,
  origin  TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX webhook_uids_uid ON webhook_uids (uid);
CREATE TABLE run_groups (
  id            BIGINT NOT NULL PRIMARY KEY,
  factory       TEXT COLLATE "C" NOT NULL,
  automation    TEXT COLLATE "C" NOT NULL,
  source        TEXT COLLATE "C" NOT NULL,
  creator_kind  TEXT COLLATE "C" NOT NULL,
  creator_name  TEXT COLLATE "C" NOT NULL,
  agent         TEXT COLLATE "C" NOT NULL,
  environment   TEXT COLLATE "C" NOT NULL,
  model         TEXT COLLATE "C" NOT NULL,
  name          TEXT COLLATE "C" NOT NULL, -- of the configuration that was posted
  schedule_id   BIGINT NOT NULL, -- 0: none
  schedule_name TEXT COLLATE "C" NOT NULL,
  schedule_cron TEXT COLLATE "C" NOT NULL,
  priority      BIGINT NOT NULL DEFAULT 0,
  worker_host   TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX runs_queue ON runs (group_id, id) WHERE state = 'QUEUED';
CREATE INDEX runs_group ON runs (state, group_id, id) WHERE state <> 'QUEUED';
CREATE INDEX runs_group_updated ON runs (state, group_id, updated_at, id) WHERE state <> 'QUEUED';
CREATE INDEX runs_group_title ON runs (state, group_id, title, id) WHERE state <> 'QUEUED';
CREATE INDEX runs_updated ON runs (updated_at, id) WHERE state <> 'QUEUED';
CREATE INDEX runs_title ON runs (title, id) WHERE state <> 'QUEUED';
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id <> 0;
CREATE INDEX runs_spec ON runs (spec_hash) WHERE automation = '';
CREATE TABLE run_metadata (
  run_id BIGINT NOT NULL,
  name   TEXT COLLATE "C" NOT NULL,
  value  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (run_id, name)
);
CREATE INDEX run_metadata_value ON run_metadata (name, value, run_id);
CREATE TABLE run_words (
  word   TEXT COLLATE "C" NOT NULL,
  run_id BIGINT NOT NULL,
  PRIMARY KEY (word, run_id)
);
CREATE INDEX run_words_run ON run_words (run_id);
CREATE TABLE pins (
  factory     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  commit_hash TEXT COLLATE "C" NOT NULL,
  reason      TEXT COLLATE "C" NOT NULL,
  pinned_by   TEXT COLLATE "C" NOT NULL,
  pinned_at   BIGINT NOT NULL,
  until       BIGINT NOT NULL -- 0: until it is unpinned
);
CREATE TABLE schedules (
  id           BIGINT NOT NULL PRIMARY KEY,
  factory      TEXT COLLATE "C" NOT NULL,
  automation   TEXT COLLATE "C" NOT NULL, -- that defines it; empty for one made by the API
  name         TEXT COLLATE "C" NOT NULL,
  cron         TEXT COLLATE "C" NOT NULL,
  enabled      BIGINT NOT NULL,
  request      TEXT COLLATE "C" NOT NULL, -- JSON, of one made by the API: what a run is created with
  creator_kind TEXT COLLATE "C" NOT NULL,
  creator_name TEXT COLLATE "C" NOT NULL,
  updated_by   TEXT COLLATE "C" NOT NULL,
  created_at   BIGINT NOT NULL,
  updated_at   BIGINT NOT NULL,
  anchor       BIGINT NOT NULL, -- from when on its ticks count
  seen         BIGINT NOT NULL, -- up to when its ticks are decided
  fired_at     BIGINT NOT NULL, -- the newest tick that started a run; 0: none
  error        TEXT COLLATE "C" NOT NULL, -- why the newest tick started none,
  key_id       BIGINT NOT NULL DEFAULT 0,
  updated_kind TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX schedules_automation ON schedules (factory, automation, name) WHERE automation <> '';
CREATE TABLE schedule_ticks (
  schedule_id BIGINT NOT NULL,
  tick        BIGINT NOT NULL,
  automation  TEXT COLLATE "C" NOT NULL,
  run_id      BIGINT NOT NULL,
  PRIMARY KEY (schedule_id, tick, automation)
);
CREATE INDEX schedule_ticks_age ON schedule_ticks (tick);
CREATE TABLE pending_secrets (
  id          BIGINT PRIMARY KEY,
  factory     TEXT COLLATE "C" NOT NULL,
  webhook     TEXT COLLATE "C" NOT NULL,
  webhook_uid TEXT COLLATE "C" NOT NULL,
  secret_name TEXT COLLATE "C" NOT NULL,
  sealed      BYTEA NOT NULL,
  received_at BIGINT NOT NULL,
  client_addr TEXT COLLATE "C" NOT NULL
);
CREATE INDEX pending_secrets_webhook ON pending_secrets (webhook_uid, id);
CREATE TABLE notices (
  id         BIGINT NOT NULL PRIMARY KEY,
  due_at     BIGINT NOT NULL, -- of the next attempt; 0: there is none
  attempts   BIGINT NOT NULL,
  status     TEXT COLLATE "C" NOT NULL, -- pending, delivered, failed
  detail     TEXT COLLATE "C" NOT NULL, -- of the last attempt
  updated_at BIGINT NOT NULL,
  recipient  TEXT COLLATE "C" NOT NULL DEFAULT 'runs',
  subject    TEXT COLLATE "C" NOT NULL DEFAULT '',
  body       BYTEA NOT NULL DEFAULT ''
);
CREATE INDEX notices_due ON notices (recipient, due_at) WHERE due_at <> 0;
CREATE UNIQUE INDEX notices_subject ON notices (recipient, subject) WHERE subject <> '';
CREATE INDEX runs_conversation ON runs (conversation_id) WHERE conversation_id <> 0;
CREATE INDEX runs_held ON runs (group_id, run_at, id) WHERE state = 'HELD';
CREATE TABLE conversations (
  id      BIGINT NOT NULL PRIMARY KEY, -- of the first run
  harness TEXT COLLATE "C" NOT NULL,
  session TEXT COLLATE "C" NOT NULL
);
CREATE TABLE spending (
  day         BIGINT NOT NULL, -- since 1970, UTC
  factory     TEXT COLLATE "C" NOT NULL,
  automation  TEXT COLLATE "C" NOT NULL, -- empty: of runs that none started
  tokens      BIGINT NOT NULL,
  cost_micros BIGINT NOT NULL, -- millionths of a dollar
  PRIMARY KEY (day, factory, automation)
);
CREATE TABLE artifacts (
  id         BIGINT NOT NULL PRIMARY KEY,
  run_id     BIGINT NOT NULL,
  type       TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C" NOT NULL,
  url        TEXT COLLATE "C" NOT NULL, -- of a link; empty: it is a file
  media_type TEXT COLLATE "C" NOT NULL,
  size       BIGINT NOT NULL,
  file       TEXT COLLATE "C" NOT NULL, -- its name in the folder of the run; empty of a link
  sum        BYTEA NOT NULL, -- SHA-256 of the file
  created_at BIGINT NOT NULL
);
CREATE INDEX artifacts_run ON artifacts (run_id, id);
CREATE INDEX artifacts_type ON artifacts (type, run_id);
CREATE TABLE guards (
  factory     TEXT COLLATE "C" NOT NULL,
  automation  TEXT COLLATE "C" NOT NULL,
  counts_from BIGINT NOT NULL, -- runs before this do not count towards its limit
  PRIMARY KEY (factory, automation)
);
CREATE INDEX run_groups_fields ON run_groups (automation, factory);
CREATE TABLE login_links (
  hash       BYTEA NOT NULL PRIMARY KEY,
  actor      TEXT COLLATE "C" NOT NULL,
  role       TEXT COLLATE "C" NOT NULL,
  via        TEXT COLLATE "C" NOT NULL,
  key_id     BIGINT NOT NULL, -- of the key that made it, or 0
  life       BIGINT NOT NULL, -- of its session, at most
  idle       BIGINT NOT NULL, -- how long its session lasts without a visit
  expires_at BIGINT NOT NULL
);
CREATE TABLE sessions (
  id         BIGINT NOT NULL PRIMARY KEY,
  hash       BYTEA NOT NULL,
  actor      TEXT COLLATE "C" NOT NULL,
  role       TEXT COLLATE "C" NOT NULL,
  via        TEXT COLLATE "C" NOT NULL,
  key_id     BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  idle       BIGINT NOT NULL,
  address    TEXT COLLATE "C" NOT NULL,
  browser    TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX sessions_hash ON sessions (hash);
CREATE INDEX run_events_kind ON run_events (run_id, kind, seq);
CREATE INDEX runs_retry ON runs (retry_of) WHERE retry_of <> 0;
CREATE TABLE pauses (
  kind      TEXT COLLATE "C" NOT NULL, -- webhook, automation
  factory   TEXT COLLATE "C" NOT NULL,
  name      TEXT COLLATE "C" NOT NULL,
  paused_at BIGINT NOT NULL,
  until     BIGINT NOT NULL, -- 0: until somebody resumes it
  paused_by TEXT COLLATE "C" NOT NULL,
  reason    TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (kind, factory, name)
);
CREATE INDEX deliveries_stopped ON deliveries (webhook_uid, (CASE outcome
	WHEN 'accepted' THEN CASE WHEN reason <> '0' THEN '' WHEN detail <> '' THEN 'run' ELSE 'matched' END
	WHEN 'duplicate' THEN 'new'
	WHEN 'rejected_auth' THEN 'authenticated'
	WHEN 'rejected_invalid_json' THEN CASE WHEN reason IN ('body_incomplete', 'body_too_slow', 'body_malformed') THEN 'received' ELSE 'parsed' END
	ELSE 'received' END), id);
CREATE INDEX deliveries_repeats ON deliveries (duplicate_of) WHERE duplicate_of <> 0;
CREATE INDEX deliveries_replays ON deliveries (replay_of) WHERE replay_of <> 0;
CREATE INDEX artifacts_url ON artifacts (url, run_id) WHERE url <> '';
CREATE TABLE started_events (
  event       BYTEA PRIMARY KEY, -- hash of factory, automation and the sender's identity of the event
  webhook_uid TEXT COLLATE "C" NOT NULL,
  delivery_id BIGINT NOT NULL
);
CREATE INDEX started_events_old ON started_events (delivery_id);
CREATE TABLE lookups (
  delivery_id BIGINT NOT NULL,
  provider    TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL, -- what is asked, such as pull_request_files
  args        TEXT COLLATE "C" NOT NULL, -- separated by blanks
  state       TEXT COLLATE "C" NOT NULL, -- waiting, answered, failed
  due_at      BIGINT NOT NULL, -- of the next attempt; 0: none
  attempts    BIGINT NOT NULL,
  answer      TEXT COLLATE "C" NOT NULL, -- a JSON list
  detail      TEXT COLLATE "C" NOT NULL, -- of the last failure
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (delivery_id, name, args)
);
CREATE INDEX lookups_due ON lookups (due_at) WHERE due_at <> 0;

-- Rows of these tables are as old as their digests (digest.go).
INSERT INTO meta (name, value) VALUES ('no digests up to', '0');

-- What the writers of all nodes share. Sequences keep no old versions, as a row would.
CREATE SEQUENCE newest_id MINVALUE 0;      -- of all rows (id.go)
CREATE SEQUENCE commits MINVALUE 0;        -- transactions of writers
CREATE SEQUENCE last_writer MINVALUE 0;    -- the node of the newest of them
CREATE SEQUENCE queued_runs MINVALUE -9223372036854775807 START 0; -- what LimitQueue counts
CREATE SEQUENCE nodes MINVALUE 0;          -- processes that opened the store
CREATE SEQUENCE leaders MINVALUE 0;        -- how often one of them became the leader

-- SQLite's name for strpos.
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT strpos($1, $2)';
