-- The checkpointer's counters, which are in pg_stat_bgwriter until 16.
SELECT checkpoints_timed, checkpoints_req AS checkpoints_requested, checkpoint_write_time AS checkpoint_write_ms,
       checkpoint_sync_time AS checkpoint_sync_ms, buffers_checkpoint, buffers_backend, stats_reset
  FROM pg_catalog.pg_stat_bgwriter
