-- Databases, and collations in use in the connected one, whose version has changed since they were created.
SELECT c.datname AS database, c.name,
       CASE c.provider WHEN 'b' THEN 'builtin' WHEN 'c' THEN 'libc' WHEN 'd' THEN 'default' WHEN 'i' THEN 'icu'
       ELSE c.provider END AS provider,
       c.recorded, c.actual
  FROM (
    SELECT d.datname::text AS datname, NULL::text AS name, d.datlocprovider::text AS provider,
           d.datcollversion::text AS recorded, pg_catalog.pg_database_collation_actual_version(d.oid)::text AS actual
      FROM pg_catalog.pg_database d
     WHERE d.datcollversion IS NOT NULL
    UNION ALL
    SELECT NULL, n.nspname || '.' || o.collname, o.collprovider::text, o.collversion::text,
           pg_catalog.pg_collation_actual_version(o.oid)::text
      FROM pg_catalog.pg_collation o
      JOIN pg_catalog.pg_namespace n ON n.oid = o.collnamespace
     WHERE o.collversion IS NOT NULL
       AND o.oid IN (SELECT d.refobjid FROM pg_catalog.pg_depend d
                      WHERE d.refclassid = 'pg_catalog.pg_collation'::pg_catalog.regclass AND d.deptype = 'n')
  ) c
 WHERE c.recorded <> c.actual
 ORDER BY c.datname NULLS LAST, c.name
 LIMIT 100
