-- pg_stat_wal, new in 14.
SELECT wal_records AS records, wal_fpi AS fpi, wal_bytes::int8 AS bytes, wal_buffers_full AS buffers_full, stats_reset
  FROM pg_catalog.pg_stat_wal
