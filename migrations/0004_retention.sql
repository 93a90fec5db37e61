-- Finding what is old without looking at what is not.
CREATE INDEX idx_runs_ended ON runs (updated_at) WHERE phase = 'ended' AND parent IS NULL;
CREATE INDEX idx_events_without_run ON events (time) WHERE run IS NULL;
CREATE INDEX idx_runs_root ON runs (root);
CREATE INDEX idx_jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;
