-- What runs have in common that lists select by. A run names its group, so that a
-- run more costs one index more, however many fields a list can select by.
CREATE TABLE run_groups (
  id            INTEGER NOT NULL PRIMARY KEY,
  factory       TEXT   NOT NULL,
  automation    TEXT   NOT NULL,
  source        TEXT   NOT NULL,
  creator_kind  TEXT   NOT NULL,
  creator_name  TEXT   NOT NULL,
  agent         TEXT   NOT NULL,
  environment   TEXT   NOT NULL,
  model         TEXT   NOT NULL,
  name          TEXT   NOT NULL, -- of the configuration that was posted
  schedule_id   BIGINT NOT NULL, -- 0: none
  schedule_name TEXT   NOT NULL,
  schedule_cron TEXT   NOT NULL
);
CREATE UNIQUE INDEX run_groups_fields ON run_groups (automation, factory, source, creator_kind, creator_name, agent, environment, model, name,
  schedule_id, schedule_name, schedule_cron);

ALTER TABLE runs ADD COLUMN group_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parent_id BIGINT NOT NULL DEFAULT 0; -- 0: none
ALTER TABLE runs ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cost_micros BIGINT NOT NULL DEFAULT 0; -- millionths of a dollar

INSERT INTO run_groups (factory, automation, source, creator_kind, creator_name, agent, environment, model, name, schedule_id, schedule_name, schedule_cron)
  SELECT DISTINCT factory, automation, source, creator_kind, creator_name, '', '', '', '', 0, '', '' FROM runs;
UPDATE runs SET group_id = (SELECT g.id FROM run_groups g WHERE g.automation = runs.automation AND g.factory = runs.factory AND g.source = runs.source
  AND g.creator_kind = runs.creator_kind AND g.creator_name = runs.creator_name);

-- A delivery pays for a place in the queue. What else lists walk, a run enters when
-- it leaves the queue.
DROP INDEX runs_state;
CREATE INDEX runs_queue ON runs (group_id) WHERE state = 'QUEUED';
CREATE INDEX runs_group ON runs (state, group_id) WHERE state <> 'QUEUED';
CREATE INDEX runs_group_updated ON runs (state, group_id, updated_at) WHERE state <> 'QUEUED';
CREATE INDEX runs_group_title ON runs (state, group_id, title) WHERE state <> 'QUEUED';
CREATE INDEX runs_updated ON runs (updated_at) WHERE state <> 'QUEUED';
CREATE INDEX runs_title ON runs (title) WHERE state <> 'QUEUED';
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id <> 0;
CREATE INDEX runs_spec ON runs (spec_hash) WHERE automation = '';

CREATE TABLE run_metadata (
  run_id BIGINT NOT NULL,
  name   TEXT   NOT NULL,
  value  TEXT   NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
CREATE INDEX run_metadata_value ON run_metadata (name, value, run_id);

-- The words of titles and posted prompts, by which runs are searched.
CREATE TABLE run_words (
  word   TEXT   NOT NULL,
  run_id BIGINT NOT NULL,
  PRIMARY KEY (word, run_id)
) WITHOUT ROWID;
CREATE INDEX run_words_run ON run_words (run_id);
