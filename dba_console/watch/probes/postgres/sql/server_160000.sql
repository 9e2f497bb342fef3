-- 16 added the role pg_use_reserved_connections.
SELECT pg_catalog.current_setting('server_version'),
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_postmaster_start_time(),
       pg_catalog.clock_timestamp(),
       pg_catalog.pg_has_role('pg_monitor', 'USAGE'),
       pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'),
       pg_catalog.pg_has_role('pg_use_reserved_connections', 'USAGE'),
       pg_catalog.inet_server_addr(),
       pg_catalog.inet_server_port()
