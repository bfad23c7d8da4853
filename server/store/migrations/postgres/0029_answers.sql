-- What became of a run, told where its event came from (SPEC 22): one row for each run and kind of answer.
CREATE TABLE answers (
	run_id BIGINT NOT NULL,
	kind TEXT COLLATE "C" NOT NULL, -- thread or check
	factory TEXT COLLATE "C" NOT NULL,
	automation TEXT COLLATE "C" NOT NULL,
	delivery_id BIGINT NOT NULL,
	webhook_uid TEXT COLLATE "C" NOT NULL,
	provider TEXT COLLATE "C" NOT NULL,
	place TEXT COLLATE "C" NOT NULL, -- a JSON object; empty: there is none
	place_key TEXT COLLATE "C" NOT NULL, -- equal of answers that go to one place: they are sent in order
	brief BIGINT NOT NULL, -- 1: outcome and link alone
	next TEXT COLLATE "C" NOT NULL, -- what is to be said: sign, start, end, mention; empty: nothing
	ended BIGINT NOT NULL, -- 1: the run has ended
	due_at BIGINT NOT NULL, -- of the next attempt; 0: none
	since BIGINT NOT NULL, -- when next was due first
	attempts BIGINT NOT NULL, -- at next
	turn BIGINT NOT NULL, -- how often a server has begun to send: fences a server that lost its place
	uncertain BIGINT NOT NULL, -- 1: an attempt at next began, and its outcome is not known
	posted TEXT COLLATE "C" NOT NULL, -- a JSON object of what stands at the sender; empty: nothing
	said TEXT COLLATE "C" NOT NULL, -- the state that was said last
	status TEXT COLLATE "C" NOT NULL, -- pending, delivered, failed, none
	detail TEXT COLLATE "C" NOT NULL, -- of the last failure, or why there is no answer
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (run_id, kind)
);
CREATE INDEX answers_due ON answers (due_at) WHERE due_at <> 0;
CREATE INDEX answers_place ON answers (place_key, run_id);
CREATE INDEX answers_failed ON answers (run_id) WHERE status = 'failed';
