-- Subscriptions of all databases, and whether their apply worker runs.
SELECT s.subname::text AS name, d.datname::text AS database, s.subenabled AS enabled,
       s.subslotname IS NOT NULL AS has_slot,
       (SELECT pg_catalog.min(w.pid) FROM pg_catalog.pg_stat_get_subscription(s.oid) w WHERE w.relid IS NULL)
         AS worker_pid
  FROM pg_catalog.pg_subscription s
  LEFT JOIN pg_catalog.pg_database d ON d.oid = s.subdbid
 ORDER BY 1, 2
 LIMIT 200
