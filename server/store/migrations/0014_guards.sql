-- Automations that are paused, or were: a loop paused them, or a person.
CREATE TABLE guards (
  factory     TEXT   NOT NULL,
  automation  TEXT   NOT NULL,
  paused_at   BIGINT NOT NULL, -- 0: it is not paused
  paused_by   TEXT   NOT NULL,
  reason      TEXT   NOT NULL,
  counts_from BIGINT NOT NULL, -- runs before this do not count towards its limit
  PRIMARY KEY (factory, automation)
) WITHOUT ROWID;
