-- What became of the pull requests that runs opened (SPEC 27.1).
ALTER TABLE artifacts ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
