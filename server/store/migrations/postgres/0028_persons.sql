-- Who caused the event that started a run (SPEC 24.1): a name, and after a blank what stays if the name changes; empty: nobody.
ALTER TABLE runs ADD COLUMN person TEXT COLLATE "C" NOT NULL DEFAULT '';
