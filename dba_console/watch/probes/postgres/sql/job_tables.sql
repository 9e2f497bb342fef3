-- Tables a dump of this database has to read, pg_largeobject (2613) and pg_largeobject_metadata (2995), with pages and
-- rows as last estimated. Opens no relation. Inserted rows are counted at the end of their transaction: a table that was restored has some, one being
-- filled none.
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpages::pg_catalog.int8,
       coalesce(t.relpages, 0)::pg_catalog.int8, c.reltuples::pg_catalog.float8,
       coalesce(pg_catalog.pg_stat_get_tuples_inserted(c.oid), 0),
       pg_catalog.current_setting('block_size')::pg_catalog.int8
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid
 WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
   AND (n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' OR c.oid IN (2613, 2995))
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                    WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')
 LIMIT 200000
