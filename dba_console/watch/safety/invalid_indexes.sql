-- Invalid indexes of the connected database that are not being built or dropped now: CREATE INDEX CONCURRENTLY, REINDEX
-- CONCURRENTLY and DROP INDEX CONCURRENTLY hold SHARE UPDATE EXCLUSIVE on the table from start to end.
SELECT n.nspname || '.' || c.relname AS name, t.relname::text AS "table", i.indisready AS ready, c.relpages AS pages
  FROM pg_catalog.pg_index i
  JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE NOT i.indisvalid AND c.relkind = 'i' AND c.relpersistence <> 't'
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks l
                    WHERE l.locktype = 'relation' AND l.relation = i.indrelid AND l.granted
                      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                                         WHERE d.datname = pg_catalog.current_database())
                      AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                                     'AccessExclusiveLock'))
 ORDER BY c.relpages DESC, n.nspname, c.relname
 LIMIT 20
