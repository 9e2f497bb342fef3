-- The checkpointer's counters, which are in pg_stat_bgwriter until 16.
SELECT checkpoints_timed, checkpoints_req, checkpoint_write_time, checkpoint_sync_time, buffers_checkpoint,
       buffers_backend, stats_reset
  FROM pg_catalog.pg_stat_bgwriter
