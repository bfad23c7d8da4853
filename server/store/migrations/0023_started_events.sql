-- Which delivery started an automation for an event of a sender, if several webhooks may report the event.
CREATE TABLE started_events (
	event       BLOB PRIMARY KEY, -- hash of factory, automation and the sender's identity of the event
	webhook_uid TEXT NOT NULL,
	delivery_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX started_events_old ON started_events (delivery_id);
