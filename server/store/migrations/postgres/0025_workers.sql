-- The processes that execute runs. Of each there is one row, by the id of its data directory.
CREATE TABLE workers (
  id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  process    TEXT COLLATE "C" NOT NULL, -- random, of its last start
  kind       TEXT COLLATE "C" NOT NULL, -- serve or worker
  names      TEXT COLLATE "C" NOT NULL, -- JSON: a list
  labels     TEXT COLLATE "C" NOT NULL, -- JSON: an object
  host       TEXT COLLATE "C" NOT NULL,
  version    TEXT COLLATE "C" NOT NULL,
  isolation  TEXT COLLATE "C" NOT NULL,
  max_runs   BIGINT NOT NULL,
  lease      BIGINT NOT NULL, -- nanoseconds
  blocked    TEXT COLLATE "C" NOT NULL, -- why it starts none, besides that it has as many as it may
  drain      BIGINT NOT NULL, -- 1: somebody has asked it to start none
  started_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  stopped_at BIGINT NOT NULL  -- 0: it has not
);
-- The content of files of artifacts, in a store that several servers share.
CREATE TABLE artifact_parts (
  artifact_id BIGINT NOT NULL,
  at          BIGINT NOT NULL, -- where in the file
  data        BYTEA NOT NULL,
  PRIMARY KEY (artifact_id, at)
);
