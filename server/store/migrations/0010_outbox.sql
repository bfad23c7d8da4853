-- Notices are of all that outside parties are told, not of the ends of runs alone.
ALTER TABLE notices RENAME COLUMN run_id TO id; -- of the run that ended, or one of its own
ALTER TABLE notices ADD COLUMN recipient TEXT NOT NULL DEFAULT 'runs'; -- the queue that it is in
ALTER TABLE notices ADD COLUMN subject TEXT NOT NULL DEFAULT ''; -- what it is about; empty: its run
ALTER TABLE notices ADD COLUMN body BLOB NOT NULL DEFAULT x''; -- empty: made when it is sent
DROP INDEX notices_due;
CREATE INDEX notices_due ON notices (recipient, due_at) WHERE due_at <> 0;
CREATE UNIQUE INDEX notices_subject ON notices (recipient, subject) WHERE subject <> '';
