-- The deliveries and runs of each subject (SPEC 21.2), which the leader writes some time after them.
CREATE TABLE subjects (
	subject TEXT NOT NULL,
	factory TEXT NOT NULL,
	id      INTEGER NOT NULL, -- of a delivery or a run
	newest  INTEGER NOT NULL, -- 1: it is the newest of its subject in its factory, 0: it is not
	PRIMARY KEY (subject, factory, id)
) WITHOUT ROWID;
CREATE INDEX subjects_id ON subjects (id);
CREATE INDEX subjects_newest ON subjects (id, subject) WHERE newest = 1;
-- The name of the thing without who names it, as people look for it.
CREATE INDEX subjects_name ON subjects (lower(substr(subject, instr(subject, ':') + 1)));
