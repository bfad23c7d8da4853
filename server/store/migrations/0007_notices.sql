-- That a run ended, to be told to whoever wants to know.
CREATE TABLE notices (
  run_id     INTEGER NOT NULL PRIMARY KEY,
  due_at     BIGINT NOT NULL, -- of the next attempt; 0: there is none
  attempts   BIGINT NOT NULL,
  status     TEXT   NOT NULL, -- pending, delivered, failed
  detail     TEXT   NOT NULL, -- of the last attempt
  updated_at BIGINT NOT NULL
);
CREATE INDEX notices_due ON notices (due_at) WHERE due_at <> 0;
