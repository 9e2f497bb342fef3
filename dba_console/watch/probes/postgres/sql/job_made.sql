-- Objects a restore has created so far besides tables: valid indexes, constraints. Opens no relation.
SELECT 'index', n.nspname, t.relname, c.relname, i.indisvalid
  FROM pg_catalog.pg_index i
  JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
 WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
UNION ALL
(SELECT CASE o.contype WHEN 'f' THEN 'foreign key' WHEN 'c' THEN 'check' ELSE 'constraint' END,
        n.nspname, t.relname, o.conname, o.convalidated
   FROM pg_catalog.pg_constraint o
   JOIN pg_catalog.pg_class t ON t.oid = o.conrelid
   JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
  WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_')
 LIMIT 400000
