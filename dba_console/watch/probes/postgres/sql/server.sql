-- Identity of the server, and the rights of our role on it.
SELECT pg_catalog.current_setting('server_version'),
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_postmaster_start_time(),
       pg_catalog.clock_timestamp(),
       pg_catalog.pg_has_role('pg_monitor', 'USAGE'),
       pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'),
       false,
       pg_catalog.inet_server_addr(),
       pg_catalog.inet_server_port()
