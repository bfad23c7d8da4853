-- What runs left for people. The content of files is in files of the folder "artifacts".
CREATE TABLE artifacts (
  id         INTEGER NOT NULL PRIMARY KEY,
  run_id     BIGINT NOT NULL,
  type       TEXT   NOT NULL,
  name       TEXT   NOT NULL,
  url        TEXT   NOT NULL, -- of a link; empty: it is a file
  media_type TEXT   NOT NULL,
  size       BIGINT NOT NULL,
  file       TEXT   NOT NULL, -- its name in the folder of the run; empty of a link
  sum        BLOB   NOT NULL, -- SHA-256 of the file
  created_at BIGINT NOT NULL
);
CREATE INDEX artifacts_run ON artifacts (run_id, id);
CREATE INDEX artifacts_type ON artifacts (type, run_id);
