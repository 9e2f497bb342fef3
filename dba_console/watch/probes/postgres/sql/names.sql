-- Names for the OIDs of the fast queries, which open no catalog themselves and so never wait for one. For a relation
-- also its estimated rows and its number of indexes, to measure the progress of a copy or a rewrite.
SELECT 'database'::text, d.oid, d.datname::text, NULL::text, pg_catalog.pg_encoding_to_char(d.encoding)::text, NULL::int8, NULL::int8
  FROM pg_catalog.pg_database d WHERE d.oid = ANY ($1::pg_catalog.oid[])
UNION ALL
SELECT 'role', r.oid, r.rolname::text, NULL, NULL, NULL, NULL FROM pg_catalog.pg_roles r WHERE r.oid = ANY ($2::pg_catalog.oid[])
UNION ALL
SELECT 'relation', c.oid, n.nspname::text, c.relname::text, NULL, NULLIF(c.reltuples, -1)::int8,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid)
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY ($3::pg_catalog.oid[])
