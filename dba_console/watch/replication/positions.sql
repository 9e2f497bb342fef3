-- WAL positions in either role: each function is called only where it is permitted.
SELECT pg_catalog.clock_timestamp() AS now_us,
       r.in_recovery,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END AS lsn,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_wal_receive_lsn() END AS receive_lsn,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replay_at,
       CASE WHEN r.in_recovery THEN pg_catalog.pg_is_wal_replay_paused() END AS replay_paused,
       w.status AS receiver_status,
       w.sender_host AS receiver_host,
       w.latest_end_lsn AS receiver_latest_end_lsn,
       CASE WHEN r.in_recovery THEN w.received_tli
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END AS timeline,
       w.pid AS receiver_pid,
       -- Only whether they are set, never their text: it may contain a password.
       CASE WHEN r.in_recovery AND pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')
            THEN pg_catalog.current_setting('primary_conninfo') <> '' END AS primary_conninfo_set,
       CASE WHEN r.in_recovery THEN pg_catalog.current_setting('restore_command') <> '' END AS restore_command_set
  FROM (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery) r
  LEFT JOIN pg_catalog.pg_stat_wal_receiver w ON true
