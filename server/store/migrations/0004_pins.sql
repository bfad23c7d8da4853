-- A commit that is to serve whatever the branch says, at most one per factory.
CREATE TABLE pins (
  factory     TEXT   NOT NULL PRIMARY KEY,
  commit_hash TEXT   NOT NULL,
  reason      TEXT   NOT NULL,
  pinned_by   TEXT   NOT NULL,
  pinned_at   BIGINT NOT NULL,
  until       BIGINT NOT NULL -- 0: until it is unpinned
);
