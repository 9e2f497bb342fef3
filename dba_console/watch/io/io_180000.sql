-- 18 counts bytes itself, since a request may now be larger than a block, and has rows for WAL, which are timed by a
-- setting of their own.
SELECT backend_type, object, context, reads, read_bytes::int8 AS read_bytes,
       CASE WHEN timing.is_on THEN read_time END AS read_ms, writes, write_bytes::int8 AS write_bytes,
       CASE WHEN timing.is_on THEN write_time END AS write_ms,
       extends, hits, evictions, fsyncs, CASE WHEN timing.is_on THEN fsync_time END AS fsync_ms
  FROM pg_catalog.pg_stat_io,
       LATERAL (SELECT pg_catalog.current_setting(
                  CASE object WHEN 'wal' THEN 'track_wal_io_timing' ELSE 'track_io_timing' END
                )::bool AS is_on) AS timing
 WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(hits, 0) + coalesce(fsyncs, 0) > 0
