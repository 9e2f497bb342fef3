-- First query of a connection: identity, version, database, and the number of slots in use when it was opened.
SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.current_setting('server_version_num')::int4,
       current_user::text,
       pg_catalog.current_setting('is_superuser') = 'on',
       pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
       d.oid,
       d.datname::text,
       pg_catalog.pg_encoding_to_char(d.encoding)::text,
       pg_catalog.pg_postmaster_start_time(),
       (SELECT a.backend_start FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a),
       pg_catalog.current_setting('max_connections')::int4,
       pg_catalog.current_setting('superuser_reserved_connections')::int4,
       coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int4,
       -- Without pg_monitor the type of another role's backend is hidden: a session with a user and a database is
       -- counted then.
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_activity(NULL) a
         WHERE a.backend_type = 'client backend'
            OR (a.backend_type IS NULL AND a.datid IS NOT NULL AND a.usesysid IS NOT NULL)),
       (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name = 'data_directory'),
       pg_catalog.inet_client_port()
  FROM pg_catalog.pg_database d
 WHERE d.datname = pg_catalog.current_database()
