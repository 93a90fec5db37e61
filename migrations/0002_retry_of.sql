-- A job made by retrying an ended one names it.
ALTER TABLE jobs ADD COLUMN retry_of TEXT REFERENCES jobs (id) ON DELETE SET NULL;
