-- A file of a skill can be a program.
ALTER TABLE apply_files ADD COLUMN executable INTEGER NOT NULL DEFAULT 0;
