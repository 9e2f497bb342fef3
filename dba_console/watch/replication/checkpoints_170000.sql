-- 17 moved them to pg_stat_checkpointer; writes by backends are in pg_stat_io.
SELECT num_timed AS checkpoints_timed, num_requested AS checkpoints_requested, write_time AS checkpoint_write_ms,
       sync_time AS checkpoint_sync_ms, buffers_written AS buffers_checkpoint, stats_reset
  FROM pg_catalog.pg_stat_checkpointer
