-- pg_stat_replication. A port of -1 is a unix socket.
SELECT pid, backend_start, usename::text AS "user", coalesce(application_name, '') AS application,
       CASE WHEN client_port = -1 THEN '[local]' ELSE pg_catalog.host(client_addr) END AS client,
       state, sent_lsn, write_lsn, flush_lsn, replay_lsn,
       pg_catalog.date_part('epoch', write_lag) AS write_lag_s,
       pg_catalog.date_part('epoch', flush_lag) AS flush_lag_s,
       pg_catalog.date_part('epoch', replay_lag) AS replay_lag_s,
       sync_state, backend_xmin
  FROM pg_catalog.pg_stat_replication
 ORDER BY application_name, pid
