-- The rare outcomes are found among a million accepted ones, which do not pay for it.
CREATE INDEX deliveries_outcome ON deliveries (outcome, id) WHERE outcome <> 'accepted';

-- An ingress address belongs to one webhook for good (SPEC 4.6).
CREATE UNIQUE INDEX webhook_uids_uid ON webhook_uids (uid);
