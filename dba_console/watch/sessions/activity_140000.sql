-- 14 added query_id.
SELECT pid, backend_start, backend_type, datid, usesysid, application_name, client_addr, client_port, state,
       xact_start, query_start, state_change, wait_event_type, wait_event, backend_xid, backend_xmin, leader_pid,
       query_id,
       pg_catalog.substr(pg_catalog.textsend(query), 1, 4096) AS query,
       pg_catalog.octet_length(query) AS query_bytes
  FROM pg_catalog.pg_stat_get_activity(NULL)
