-- pg_stat_database with the sessions that did not end normally; the row of datid 0 counts the shared objects.
SELECT datid, datname::text, numbackends, xact_commit, xact_rollback, blks_read, blks_hit, tup_returned, tup_fetched,
       tup_inserted + tup_updated + tup_deleted, conflicts, temp_files, temp_bytes, deadlocks, checksum_failures,
       checksum_last_failure, blk_read_time, blk_write_time, stats_reset, sessions_abandoned,
       sessions_fatal, sessions_killed
  FROM pg_catalog.pg_stat_database
 ORDER BY datid
