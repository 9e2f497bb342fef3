-- Sizes of a few databases: the server stats every file of each, so the batch is adapted to the time it takes.
SELECT d.oid, pg_catalog.pg_database_size(d.oid) FROM pg_catalog.pg_database d WHERE d.oid = ANY ($1::pg_catalog.oid[])
