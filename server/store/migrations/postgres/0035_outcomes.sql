-- What became of the pull requests that runs opened (SPEC 27.1).
ALTER TABLE artifacts ADD COLUMN outcome TEXT COLLATE "C" NOT NULL DEFAULT '';
