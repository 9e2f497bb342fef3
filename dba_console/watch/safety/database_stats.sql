-- pg_stat_database; the row of datid 0 counts the shared objects.
-- With track_io_timing off its times are 0: unknown.
SELECT datid AS oid, datname::text AS name, numbackends, xact_commit, xact_rollback, blks_read, blks_hit, tup_returned, tup_fetched,
       tup_inserted + tup_updated + tup_deleted AS tup_written, conflicts, temp_files, temp_bytes, deadlocks,
       checksum_failures, checksum_last_failure, CASE WHEN timing.is_on THEN blk_read_time END AS blk_read_ms,
       CASE WHEN timing.is_on THEN blk_write_time END AS blk_write_ms, stats_reset
  FROM pg_catalog.pg_stat_database,
       LATERAL (SELECT pg_catalog.current_setting('track_io_timing')::bool AS is_on) AS timing
 ORDER BY datid
