-- Deliveries by the stage at which they left the belt; '' went through. The expression is that of stoppedAt (changes.go).
CREATE INDEX deliveries_stopped ON deliveries (webhook_uid, (CASE outcome
	WHEN 'accepted' THEN CASE WHEN reason <> '0' THEN '' WHEN detail <> '' THEN 'run' ELSE 'matched' END
	WHEN 'duplicate' THEN 'new'
	WHEN 'rejected_auth' THEN 'authenticated'
	WHEN 'rejected_invalid_json' THEN CASE WHEN reason IN ('body_incomplete', 'body_too_slow', 'body_malformed') THEN 'received' ELSE 'parsed' END
	ELSE 'received' END), id);
DROP INDEX deliveries_outcome; -- which only knew the rare ones, of all webhooks

-- What repeats a delivery, and what replays it.
CREATE INDEX deliveries_repeats ON deliveries (duplicate_of) WHERE duplicate_of <> 0;
CREATE INDEX deliveries_replays ON deliveries (replay_of) WHERE replay_of <> 0;
