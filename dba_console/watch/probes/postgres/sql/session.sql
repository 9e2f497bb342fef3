-- Session setup; only settings this role may change, and only if no pooler would pass them on to another client.
SELECT pg_catalog.set_config(s.name, v.setting, false), pg_catalog.set_config('role', 'none', false)
  FROM (VALUES ('statement_timeout', $2::text),
               ('lock_timeout', $3::text),
               ('idle_in_transaction_session_timeout', '0'),
               ('idle_session_timeout', '0'),
               ('transaction_timeout', '0'),
               ('default_transaction_read_only', 'on'),
               ('tcp_keepalives_idle', '10'),
               ('tcp_keepalives_interval', '5'),
               ('tcp_keepalives_count', '3'),
               ('search_path', 'pg_catalog, pg_temp'),
               ('jit', 'off'),
               ('max_parallel_workers_per_gather', '0'),
               ('pg_stat_statements.track', 'none')) v (name, setting)
  JOIN pg_catalog.pg_settings s ON s.name = v.name
 WHERE pg_catalog.pg_backend_pid() = $1::int4
   AND (s.context = 'user' OR pg_catalog.current_setting('is_superuser') = 'on')
