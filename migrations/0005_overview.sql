-- The card of the last probe of a BMC, and the index of the jobs that have not ended.
ALTER TABLE server_observed ADD COLUMN card TEXT;
ALTER TABLE server_observed ADD COLUMN probed_at TEXT;
CREATE INDEX idx_runs_open ON runs (phase) WHERE phase <> 'ended' AND parent IS NULL;
