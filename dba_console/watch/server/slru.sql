-- pg_stat_slru, without caches that were never used.
SELECT name, blks_hit, blks_read, blks_written, blks_zeroed, truncates, stats_reset
  FROM pg_catalog.pg_stat_slru
 WHERE blks_hit + blks_read + blks_written + blks_zeroed > 0
 ORDER BY name
