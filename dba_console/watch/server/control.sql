-- Identity from pg_control, which pg_control_system() shows signed and pg_controldata unsigned; a primary's timeline from
-- its current WAL file, since pg_control lags until the next checkpoint. A standby that has lost its receiver is on the
-- timeline it has replayed, not that of its last restartpoint.
SELECT (s.system_identifier + CASE WHEN s.system_identifier < 0 THEN 18446744073709551616 ELSE 0 END)::text
         AS system_identifier,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN greatest((SELECT r.received_tli FROM pg_catalog.pg_stat_wal_receiver r), c.timeline_id,
                          e.min_recovery_end_timeline)
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END AS timeline
  FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c,
       pg_catalog.pg_control_recovery() e
