-- Pushes that wait for a person are outputs, and their packs are artifacts (SPEC 23.3).
CREATE INDEX outputs_pushes ON outputs (run_id) WHERE kind = 'push';
CREATE INDEX artifacts_packs ON artifacts (run_id) WHERE media_type = 'application/x-git-packed-objects';
