-- What waits, or waited, for a decision of a person (SPEC 26.1): the start of a run, or something that its agent asked for.
CREATE TABLE approvals (
  run_id     BIGINT NOT NULL,
  seq        BIGINT NOT NULL, -- 0: the start of the run; else the output of this number
  factory    TEXT   NOT NULL,
  automation TEXT   NOT NULL,
  outsider   BIGINT NOT NULL, -- 1: the person of the event may not start the automation
  rules      TEXT   NOT NULL, -- of a start: a JSON object that says how the run takes its place in its line
  asked_at   BIGINT NOT NULL,
  ends_at    BIGINT NOT NULL, -- nobody can approve it from then on
  decision   TEXT   NOT NULL, -- empty: it waits; approved, declined, expired, withdrawn
  hash       TEXT   NOT NULL, -- of what was decided; empty: it waits
  decided_by TEXT   NOT NULL,
  actor      TEXT   NOT NULL, -- who decided, and through what, as the audit log has it
  reason     TEXT   NOT NULL,
  decided_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX approvals_waiting ON approvals (factory, automation, outsider) WHERE decision = '';
CREATE INDEX approvals_ends ON approvals (ends_at) WHERE decision = '';
ALTER TABLE outputs ADD COLUMN waits BIGINT NOT NULL DEFAULT 0; -- of row 0: for how many microseconds what the agent asks for waits for a person; 0: it does not
