-- What a server is made of, as its BMC showed it. The inventory that the machine itself reported stays beside it.
ALTER TABLE server_observed ADD COLUMN hardware TEXT;
ALTER TABLE server_observed ADD COLUMN hardware_read_at TEXT;
