-- A page shows some kinds of events of a transcript, and counts all; and whether a run was
-- started again.
CREATE INDEX run_events_kind ON run_events (run_id, kind, seq);
CREATE INDEX runs_retry ON runs (retry_of) WHERE retry_of <> 0;
