-- A webhook can be paused as an automation can, and a pause can end by itself.
CREATE TABLE pauses (
  kind      TEXT   NOT NULL, -- webhook, automation
  factory   TEXT   NOT NULL,
  name      TEXT   NOT NULL,
  paused_at BIGINT NOT NULL,
  until     BIGINT NOT NULL, -- 0: until somebody resumes it
  paused_by TEXT   NOT NULL,
  reason    TEXT   NOT NULL,
  PRIMARY KEY (kind, factory, name)
) WITHOUT ROWID;
INSERT INTO pauses (kind, factory, name, paused_at, until, paused_by, reason)
  SELECT 'automation', factory, automation, paused_at, 0, paused_by, reason FROM guards WHERE paused_at <> 0;
ALTER TABLE guards DROP COLUMN paused_at;
ALTER TABLE guards DROP COLUMN paused_by;
ALTER TABLE guards DROP COLUMN reason;
