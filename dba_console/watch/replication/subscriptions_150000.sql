-- Subscriptions of all databases, whether their apply worker runs, and errors counted since the statistics reset.
SELECT s.subname::text AS name, d.datname::text AS database, s.subenabled AS enabled,
       s.subslotname IS NOT NULL AS has_slot,
       (SELECT pg_catalog.min(w.pid) FROM pg_catalog.pg_stat_get_subscription(s.oid) w WHERE w.relid IS NULL)
         AS worker_pid,
       e.apply_error_count AS apply_errors, e.sync_error_count AS sync_errors, s.subdisableonerr AS disable_on_error
  FROM pg_catalog.pg_subscription s
  LEFT JOIN pg_catalog.pg_database d ON d.oid = s.subdbid
  LEFT JOIN LATERAL pg_catalog.pg_stat_get_subscription_stats(s.oid) e ON true
 ORDER BY 1, 2
 LIMIT 200
