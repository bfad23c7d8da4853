-- The runs that have not ended, of automations that say what an event does while a run is about the same subject (SPEC 21.3, 21.4).
CREATE TABLE lines (
  factory     TEXT   NOT NULL,
  automation  TEXT   NOT NULL,
  subject     TEXT   NOT NULL,
  delivery_id BIGINT NOT NULL, -- the order of the line
  run_id      BIGINT NOT NULL,
  first_at    BIGINT NOT NULL, -- when the first of the events came that this run stands for
  settles_at  BIGINT NOT NULL, -- until then a newer event supersedes the run; 0: none does
  PRIMARY KEY (factory, automation, subject, delivery_id, run_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX lines_run ON lines (run_id);

-- The conversations that further events of a subject continue, as long as the first run of the conversation is kept.
CREATE TABLE subject_conversations (
  factory         TEXT   NOT NULL,
  automation      TEXT   NOT NULL,
  subject         TEXT   NOT NULL,
  conversation_id BIGINT NOT NULL,
  PRIMARY KEY (factory, automation, subject)
) WITHOUT ROWID;
CREATE INDEX subject_conversations_id ON subject_conversations (conversation_id);

ALTER TABLE runs ADD COLUMN replaced_by BIGINT NOT NULL DEFAULT 0; -- the run of a newer event of its subject, in favour of which it is cancelled; 0: none
ALTER TABLE runs ADD COLUMN counts_at BIGINT NOT NULL DEFAULT 0; -- when it counts for maxRunsPerHour, if that had no room when the run was created; 0: then
CREATE INDEX runs_counts ON runs (counts_at) WHERE counts_at <> 0;
