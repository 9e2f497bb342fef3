-- WAL positions in either role: each function is called only where it is permitted.
SELECT pg_catalog.clock_timestamp(),
       r.in_recovery,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_wal_receive_lsn() END,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_xact_replay_timestamp() END,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_is_wal_replay_paused() END,
       w.status, w.sender_host, w.latest_end_lsn, w.received_tli,
       CASE WHEN NOT r.in_recovery
            THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END,
       w.pid,
       -- Only whether they are set, never their text: it may contain a password.
       CASE WHEN r.in_recovery AND pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')
            THEN pg_catalog.current_setting('primary_conninfo') <> '' END,
       CASE WHEN r.in_recovery THEN pg_catalog.current_setting('restore_command') <> '' END
  FROM (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery) r
  LEFT JOIN pg_catalog.pg_stat_wal_receiver w ON true
