-- What holds back the xmin horizon, oldest first. Snapshots of VACUUM and of this query do not hold it back.
SELECT kind, who, pid, xid_age, since, datname AS database, state
  FROM (
    SELECT 'backend'::text AS kind, coalesce(nullif(a.application_name, ''), a.usename::text, a.backend_type) AS who, a.pid,
           greatest(pg_catalog.age(a.backend_xid), pg_catalog.age(a.backend_xmin)) AS xid_age, a.xact_start AS since,
           a.datname::text AS datname, a.state AS state
      FROM pg_catalog.pg_stat_activity a
     WHERE (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
       AND a.pid <> pg_catalog.pg_backend_pid()
       AND a.backend_type IS DISTINCT FROM 'walsender'
       AND a.pid NOT IN (SELECT v.pid FROM pg_catalog.pg_stat_progress_vacuum v)
    UNION ALL
    SELECT 'prepared', p.gid, NULL, pg_catalog.age(p.transaction), p.prepared, p.database::text, p.owner::text
      FROM pg_catalog.pg_prepared_xacts p
    UNION ALL
    SELECT 'slot', s.slot_name::text, s.active_pid,
           greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)), NULL, s.database::text,
           CASE WHEN s.active THEN 'active' ELSE 'inactive' END
      FROM pg_catalog.pg_replication_slots s
     WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
    UNION ALL
    SELECT 'standby', coalesce(nullif(r.application_name, ''), r.usename::text), r.pid, pg_catalog.age(r.backend_xmin),
           r.backend_start, NULL, r.state
      FROM pg_catalog.pg_stat_replication r
     WHERE r.backend_xmin IS NOT NULL
  ) holders
 ORDER BY xid_age DESC NULLS LAST
 LIMIT 20
