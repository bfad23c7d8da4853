-- Accepted deliveries by the body that their sender signed, if it did not sign their identity (SPEC 5.13):
-- the leader writes them some time after they were recorded, and the ingress those of a webhook with replayWindow.
CREATE TABLE signed_bodies (
	id      BIGINT NOT NULL PRIMARY KEY, -- of a delivery
	hash    BYTEA,                       -- of the webhook and the body; NULL: the delivery was refused
	factory TEXT COLLATE "C" NOT NULL,
	earlier BIGINT NOT NULL              -- the delivery that brought the body before; 0: none
);
CREATE INDEX signed_bodies_hash ON signed_bodies (hash, id) WHERE hash IS NOT NULL;
CREATE INDEX signed_bodies_earlier ON signed_bodies (id, factory) WHERE earlier <> 0;
