-- The oldest tables of the connected database, each including its TOAST table.
SELECT n.nspname || '.' || o.relname AS name, o.xid_age, o.mxid_age, o.pages,
       pg_catalog.pg_stat_get_last_vacuum_time(o.oid) AS last_vacuum,
       pg_catalog.pg_stat_get_last_autovacuum_time(o.oid) AS last_autovacuum
  FROM (
    SELECT c.oid, c.relnamespace, c.relname,
           greatest(pg_catalog.age(c.relfrozenxid), pg_catalog.age(t.relfrozenxid)) AS xid_age,
           greatest(pg_catalog.mxid_age(c.relminmxid), pg_catalog.mxid_age(t.relminmxid)) AS mxid_age,
           c.relpages::int8 + coalesce(t.relpages, 0) AS pages
      FROM pg_catalog.pg_class c
      LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid
     WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
     ORDER BY 4 DESC, 6 DESC
     LIMIT 20
  ) o
  JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace
 ORDER BY o.xid_age DESC, o.pages DESC
