-- What senders' APIs are asked, because deliveries lack it, and their answers.
CREATE TABLE lookups (
	delivery_id INTEGER NOT NULL,
	provider    TEXT NOT NULL,
	name        TEXT NOT NULL, -- what is asked, such as pull_request_files
	args        TEXT NOT NULL, -- separated by blanks
	state       TEXT NOT NULL, -- waiting, answered, failed
	due_at      INTEGER NOT NULL, -- of the next attempt; 0: none
	attempts    INTEGER NOT NULL,
	answer      TEXT NOT NULL, -- a JSON list
	detail      TEXT NOT NULL, -- of the last failure
	created_at  INTEGER NOT NULL,
	updated_at  INTEGER NOT NULL,
	PRIMARY KEY (delivery_id, name, args)
) WITHOUT ROWID;
CREATE INDEX lookups_due ON lookups (due_at) WHERE due_at <> 0;
