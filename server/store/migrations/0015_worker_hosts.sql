-- A run may ask for a worker. A claim skips the groups of other workers.
ALTER TABLE run_groups ADD COLUMN worker_host TEXT NOT NULL DEFAULT '';
DROP INDEX run_groups_fields;
CREATE UNIQUE INDEX run_groups_fields ON run_groups (automation, factory, source, creator_kind, creator_name, agent, environment, model, name,
  schedule_id, schedule_name, schedule_cron, priority, worker_host);
