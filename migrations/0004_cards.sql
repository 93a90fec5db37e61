-- The card of the last probe of a BMC.
ALTER TABLE server_observed ADD COLUMN card TEXT;
ALTER TABLE server_observed ADD COLUMN probed_at TEXT;
