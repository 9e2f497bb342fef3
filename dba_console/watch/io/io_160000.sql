-- pg_stat_io, new in 16: rows that changed since the reset; bytes are counts of op_bytes. With track_io_timing off its
-- times are 0: unknown.
SELECT backend_type, object, context, reads, reads * op_bytes AS read_bytes,
       CASE WHEN timing.is_on THEN read_time END AS read_ms, writes, writes * op_bytes AS write_bytes,
       CASE WHEN timing.is_on THEN write_time END AS write_ms,
       extends, hits, evictions, fsyncs, CASE WHEN timing.is_on THEN fsync_time END AS fsync_ms
  FROM pg_catalog.pg_stat_io,
       LATERAL (SELECT pg_catalog.current_setting('track_io_timing')::bool AS is_on) AS timing
 WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(hits, 0) + coalesce(fsyncs, 0) > 0
