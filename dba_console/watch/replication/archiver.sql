-- pg_stat_archiver; a standby archives only with archive_mode = always.
SELECT m.mode = 'always' OR (m.mode = 'on' AND NOT pg_catalog.pg_is_in_recovery()) AS enabled,
       a.archived_count, a.last_archived_wal, a.last_archived_time AS last_archived_at,
       a.failed_count, a.last_failed_wal, a.last_failed_time AS last_failed_at,
       a.stats_reset, pg_catalog.clock_timestamp() AS now_us
  FROM pg_catalog.pg_stat_archiver a, (SELECT pg_catalog.current_setting('archive_mode') AS mode) m
