-- 17 moved them to pg_stat_checkpointer; writes by backends are in pg_stat_io.
SELECT num_timed, num_requested, write_time, sync_time, buffers_written, NULL::int8, stats_reset
  FROM pg_catalog.pg_stat_checkpointer
