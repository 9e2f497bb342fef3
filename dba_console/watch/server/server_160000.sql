-- 16 added the role pg_use_reserved_connections.
SELECT pg_catalog.split_part(pg_catalog.current_setting('server_version'), ' ', 1) AS version,
       pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.pg_postmaster_start_time() AS start_us,
       pg_catalog.clock_timestamp() AS now_us,
       pg_catalog.pg_has_role('pg_monitor', 'USAGE') AS pg_monitor,
       pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') AS signal_backend,
       pg_catalog.pg_has_role('pg_use_reserved_connections', 'USAGE') AS reserved_member,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS server_address,
       pg_catalog.inet_server_port() AS server_port
