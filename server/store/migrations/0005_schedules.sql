CREATE TABLE schedules (
  id           INTEGER NOT NULL PRIMARY KEY,
  factory      TEXT   NOT NULL,
  automation   TEXT   NOT NULL, -- that defines it; empty for one made by the API
  name         TEXT   NOT NULL,
  cron         TEXT   NOT NULL,
  enabled      BIGINT NOT NULL,
  request      TEXT   NOT NULL, -- JSON, of one made by the API: what a run is created with
  creator_kind TEXT   NOT NULL,
  creator_name TEXT   NOT NULL,
  updated_by   TEXT   NOT NULL,
  created_at   BIGINT NOT NULL,
  updated_at   BIGINT NOT NULL,
  anchor       BIGINT NOT NULL, -- from when on its ticks count
  seen         BIGINT NOT NULL, -- up to when its ticks are decided
  fired_at     BIGINT NOT NULL, -- the newest tick that started a run; 0: none
  error        TEXT   NOT NULL  -- why the newest tick started none
);
CREATE UNIQUE INDEX schedules_automation ON schedules (factory, automation, name) WHERE automation <> '';

-- A tick starts one run per automation, whoever sees it first, and however often
-- the clock comes by.
CREATE TABLE schedule_ticks (
  schedule_id BIGINT NOT NULL,
  tick        BIGINT NOT NULL,
  automation  TEXT   NOT NULL,
  run_id      BIGINT NOT NULL,
  PRIMARY KEY (schedule_id, tick, automation)
) WITHOUT ROWID;
CREATE INDEX schedule_ticks_age ON schedule_ticks (tick);
