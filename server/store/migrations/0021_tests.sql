-- Who let the server send a delivery, as a test; '' is the rule: a sender sent it.
ALTER TABLE deliveries ADD COLUMN test_by TEXT NOT NULL DEFAULT '';
