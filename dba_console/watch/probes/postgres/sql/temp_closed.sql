-- Bytes of temporary files that are closed: a file counts in pg_stat_database when it is, and not before.
SELECT pg_catalog.sum(temp_bytes)::int8 FROM pg_catalog.pg_stat_database
