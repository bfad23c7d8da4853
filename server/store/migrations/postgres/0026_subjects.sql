-- What the event that started a run is about (SPEC 21.1); empty: nothing says so.
ALTER TABLE runs ADD COLUMN subject TEXT COLLATE "C" NOT NULL DEFAULT '';
