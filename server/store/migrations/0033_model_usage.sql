-- What the requests of runs to models used, as their gateways counted it (SPEC 25.3). What is reserved counts as used.
CREATE TABLE model_usage (
	day INTEGER NOT NULL, -- since 1970, UTC
	run_id INTEGER NOT NULL,
	lease INTEGER NOT NULL, -- the token of the lease whose worker counted
	model TEXT NOT NULL,
	factory TEXT NOT NULL,
	automation TEXT NOT NULL, -- empty: of a run that none started
	input INTEGER NOT NULL, -- tokens
	cache_read INTEGER NOT NULL,
	cache_write INTEGER NOT NULL,
	output INTEGER NOT NULL,
	cost_micros INTEGER NOT NULL, -- millionths of a dollar
	requests INTEGER NOT NULL,
	retries INTEGER NOT NULL,
	errors INTEGER NOT NULL, -- requests that the provider did not answer
	answered INTEGER NOT NULL, -- requests that got a token
	waited_ms INTEGER NOT NULL, -- the sum of their times to the first token
	PRIMARY KEY (day, run_id, lease, model)
) WITHOUT ROWID;
CREATE INDEX model_usage_run ON model_usage (run_id);
