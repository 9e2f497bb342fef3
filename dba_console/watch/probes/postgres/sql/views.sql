-- Progress views of this server: read from the catalog, so that a version unknown here shows its own too.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'pg_catalog' AND c.relkind = 'v' AND c.relname ~ '^pg_stat_progress_[a-z_]+$'
 ORDER BY 1
