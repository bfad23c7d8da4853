-- A run goes on with the work of another one, or after it: it is HELD until its time has come. Outside the store a HELD run is QUEUED.
ALTER TABLE runs ADD COLUMN conversation_id BIGINT NOT NULL DEFAULT 0; -- the first run of its conversation; 0: it is the first itself
ALTER TABLE runs ADD COLUMN retry_of BIGINT NOT NULL DEFAULT 0; -- the run that somebody started again with this one; 0: none
ALTER TABLE runs ADD COLUMN run_at BIGINT NOT NULL DEFAULT 0; -- of a HELD run: when it may start; the largest number: when the run before it has ended
CREATE INDEX runs_conversation ON runs (conversation_id) WHERE conversation_id <> 0;
CREATE INDEX runs_held ON runs (group_id, run_at) WHERE state = 'HELD';

-- What a harness keeps of a conversation, under the name by which it finds it again.
CREATE TABLE conversations (
  id      INTEGER NOT NULL PRIMARY KEY, -- of the first run
  harness TEXT NOT NULL,
  session TEXT NOT NULL
);

-- Runs of a higher priority start first.
ALTER TABLE run_groups ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;
DROP INDEX run_groups_fields;
CREATE UNIQUE INDEX run_groups_fields ON run_groups (automation, factory, source, creator_kind, creator_name, agent, environment, model, name,
  schedule_id, schedule_name, schedule_cron, priority);
