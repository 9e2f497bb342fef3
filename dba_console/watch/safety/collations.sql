-- Collations of the connected database that are in use and whose version has changed since they were created.
SELECT NULL::text AS database, c.name,
       CASE c.provider WHEN 'b' THEN 'builtin' WHEN 'c' THEN 'libc' WHEN 'd' THEN 'default' WHEN 'i' THEN 'icu'
       ELSE c.provider END AS provider,
       c.recorded, c.actual
  FROM (
    SELECT n.nspname || '.' || o.collname AS name, o.collprovider::text AS provider, o.collversion::text AS recorded,
           pg_catalog.pg_collation_actual_version(o.oid)::text AS actual
      FROM pg_catalog.pg_collation o
      JOIN pg_catalog.pg_namespace n ON n.oid = o.collnamespace
     WHERE o.collversion IS NOT NULL
       AND o.oid IN (SELECT d.refobjid FROM pg_catalog.pg_depend d
                      WHERE d.refclassid = 'pg_catalog.pg_collation'::pg_catalog.regclass AND d.deptype = 'n')
  ) c
 WHERE c.recorded <> c.actual
 ORDER BY c.name
 LIMIT 100
