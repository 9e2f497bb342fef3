-- pg_stat_wal, new in 14.
SELECT wal_records, wal_fpi, wal_bytes::int8, wal_buffers_full, stats_reset FROM pg_catalog.pg_stat_wal
