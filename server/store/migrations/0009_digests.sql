-- What is stored is checked when it is read (digest.go). What is older than this has
-- no digest; the number of the newest such row tells it from one whose digest is lost.
ALTER TABLE deliveries ADD COLUMN digest BIGINT; -- of the payload
ALTER TABLE run_events ADD COLUMN digest BIGINT;
ALTER TABLE applies ADD COLUMN digest BIGINT; -- of the names of the files, their hashes, and the webhooks' bindings
ALTER TABLE runs ADD COLUMN events BIGINT; -- how many the transcript of an ended run has; NULL: not known
INSERT INTO meta (name, value) SELECT 'no digests up to', coalesce(max(id), 0) FROM
  (SELECT max(id) AS id FROM deliveries UNION ALL SELECT max(id) FROM runs UNION ALL SELECT max(id) FROM applies);
