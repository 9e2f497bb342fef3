-- Bytes of closed temporary files: pg_stat_database counts a file when it is closed, not before.
SELECT pg_catalog.sum(temp_bytes)::int8 AS closed_bytes FROM pg_catalog.pg_stat_database
