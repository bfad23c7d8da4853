-- What the requests of runs to models used, as their gateways counted it (SPEC 25.3). What is reserved counts as used.
CREATE TABLE model_usage (
	day BIGINT NOT NULL, -- since 1970, UTC
	run_id BIGINT NOT NULL,
	lease BIGINT NOT NULL, -- the token of the lease whose worker counted
	model TEXT COLLATE "C" NOT NULL,
	factory TEXT COLLATE "C" NOT NULL,
	automation TEXT COLLATE "C" NOT NULL, -- empty: of a run that none started
	input BIGINT NOT NULL, -- tokens
	cache_read BIGINT NOT NULL,
	cache_write BIGINT NOT NULL,
	output BIGINT NOT NULL,
	cost_micros BIGINT NOT NULL, -- millionths of a dollar
	requests BIGINT NOT NULL,
	retries BIGINT NOT NULL,
	errors BIGINT NOT NULL, -- requests that the provider did not answer
	answered BIGINT NOT NULL, -- requests that got a token
	waited_ms BIGINT NOT NULL, -- the sum of their times to the first token
	PRIMARY KEY (day, run_id, lease, model)
);
CREATE INDEX model_usage_run ON model_usage (run_id);
