-- How a server's BMC is spoken to, when its operator knows better than the detection.
ALTER TABLE servers ADD COLUMN bmc_profile TEXT;
ALTER TABLE servers ADD COLUMN quirks TEXT; -- a JSON object of flags
-- What its firmware has taught; holds the firmware version, never changes the revision.
ALTER TABLE server_observed ADD COLUMN learned TEXT;
