-- What became of a run, told where its event came from (SPEC 22): one row for each run and kind of answer.
CREATE TABLE answers (
	run_id INTEGER NOT NULL,
	kind TEXT NOT NULL, -- thread or check
	factory TEXT NOT NULL,
	automation TEXT NOT NULL,
	delivery_id INTEGER NOT NULL,
	webhook_uid TEXT NOT NULL,
	provider TEXT NOT NULL,
	place TEXT NOT NULL, -- a JSON object; empty: there is none
	place_key TEXT NOT NULL, -- equal of answers that go to one place: they are sent in order
	brief INTEGER NOT NULL, -- 1: outcome and link alone
	next TEXT NOT NULL, -- what is to be said: sign, start, end, mention; empty: nothing
	ended INTEGER NOT NULL, -- 1: the run has ended
	due_at INTEGER NOT NULL, -- of the next attempt; 0: none
	since INTEGER NOT NULL, -- when next was due first
	attempts INTEGER NOT NULL, -- at next
	turn INTEGER NOT NULL, -- how often a server has begun to send: fences a server that lost its place
	uncertain INTEGER NOT NULL, -- 1: an attempt at next began, and its outcome is not known
	posted TEXT NOT NULL, -- a JSON object of what stands at the sender; empty: nothing
	said TEXT NOT NULL, -- the state that was said last
	status TEXT NOT NULL, -- pending, delivered, failed, none
	detail TEXT NOT NULL, -- of the last failure, or why there is no answer
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (run_id, kind)
) WITHOUT ROWID;
CREATE INDEX answers_due ON answers (due_at) WHERE due_at <> 0;
CREATE INDEX answers_place ON answers (place_key, run_id);
CREATE INDEX answers_failed ON answers (run_id) WHERE status = 'failed';
