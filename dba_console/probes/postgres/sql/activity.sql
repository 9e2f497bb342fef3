-- Every backend, from the function under pg_stat_activity: the view would open pg_database and pg_authid each second.
SELECT pid, backend_start, backend_type, datid, usesysid, application_name, client_addr, client_port, state,
       xact_start, query_start, state_change, wait_event_type, wait_event, backend_xid, backend_xmin, leader_pid,
       NULL::int8, query
  FROM pg_catalog.pg_stat_get_activity(NULL)
