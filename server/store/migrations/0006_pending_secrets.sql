-- What a sender gave as a webhook's secret in its handshake, until the operator confirms it (SPEC 6.2).
CREATE TABLE pending_secrets (
	id          INTEGER PRIMARY KEY,
	factory     TEXT    NOT NULL,
	webhook     TEXT    NOT NULL,
	webhook_uid TEXT    NOT NULL,
	secret_name TEXT    NOT NULL,
	sealed      BLOB    NOT NULL,
	received_at INTEGER NOT NULL,
	client_addr TEXT    NOT NULL
);
CREATE INDEX pending_secrets_webhook ON pending_secrets (webhook_uid, id);
