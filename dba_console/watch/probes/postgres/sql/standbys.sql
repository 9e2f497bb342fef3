-- pg_stat_replication.
SELECT pid, backend_start, usename::text, application_name, client_addr, client_port, state, sent_lsn, write_lsn,
       flush_lsn, replay_lsn,
       pg_catalog.date_part('epoch', write_lag), pg_catalog.date_part('epoch', flush_lag),
       pg_catalog.date_part('epoch', replay_lag), sync_state, backend_xmin
  FROM pg_catalog.pg_stat_replication
 ORDER BY application_name, pid
