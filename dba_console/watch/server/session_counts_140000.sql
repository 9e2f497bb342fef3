-- Sessions of all databases since the reset of their statistics; those without a database are not counted.
SELECT pg_catalog.sum(sessions)::int8 AS sessions, pg_catalog.sum(sessions_abandoned)::int8 AS abandoned,
       pg_catalog.sum(sessions_fatal)::int8 AS fatal, pg_catalog.sum(sessions_killed)::int8 AS killed,
       pg_catalog.sum(active_time) AS active_ms,
       pg_catalog.sum(idle_in_transaction_time) AS idle_in_transaction_ms,
       pg_catalog.max(stats_reset) AS stats_reset
  FROM pg_catalog.pg_stat_database
 WHERE datid <> 0
