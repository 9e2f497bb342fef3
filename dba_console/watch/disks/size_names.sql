-- Databases whose size may be read: CONNECT or pg_read_all_stats is needed; the sizes of others stay unknown.
SELECT d.oid, d.datname::text,
       pg_catalog.has_database_privilege(d.oid, 'CONNECT') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
  FROM pg_catalog.pg_database d
 ORDER BY d.datname
