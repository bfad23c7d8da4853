-- What the agents of runs asked the server to do (SPEC 23). Row 0 of a run says where; it is there from the run's beginning.
CREATE TABLE outputs (
	run_id INTEGER NOT NULL,
	seq INTEGER NOT NULL, -- the order in which the agent asked, from 1
	kind TEXT NOT NULL,
	request TEXT NOT NULL, -- a JSON object
	bounds TEXT NOT NULL, -- a JSON object: what its automation said of the kind
	webhook_uid TEXT NOT NULL,
	provider TEXT NOT NULL,
	place TEXT NOT NULL, -- a JSON object; empty: there is none
	status TEXT NOT NULL, -- place, pending, done, failed, none
	detail TEXT NOT NULL, -- of the last failure, or why it is not done
	posted TEXT NOT NULL, -- a JSON object of what was made at the sender; empty: nothing, or it has no address
	due_at INTEGER NOT NULL, -- of the next attempt; 0: none
	attempts INTEGER NOT NULL,
	turn INTEGER NOT NULL, -- how often a server has begun: fences a server that lost its place
	uncertain INTEGER NOT NULL, -- 1: an attempt began, and its outcome is not known
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX outputs_due ON outputs (due_at) WHERE due_at <> 0;
CREATE INDEX outputs_failed ON outputs (run_id) WHERE status = 'failed';
