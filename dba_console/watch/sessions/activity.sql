-- All backends, from the function under pg_stat_activity: the view would open pg_database and pg_authid each second. Of
-- a query the first 4 kB and its length: track_activity_query_size may be 1 MB, and there may be a thousand sessions.
-- Cut by bytes: a character of another database's encoding may be invalid here, and would raise an error.
SELECT pid, backend_start, backend_type, datid, usesysid, application_name, client_addr, client_port, state,
       xact_start, query_start, state_change, wait_event_type, wait_event, backend_xid, backend_xmin, leader_pid,
       NULL::int8 AS query_id,
       pg_catalog.substr(pg_catalog.textsend(query), 1, 4096) AS query,
       pg_catalog.octet_length(query) AS query_bytes
  FROM pg_catalog.pg_stat_get_activity(NULL)
