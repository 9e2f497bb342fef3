-- Names of what the fast queries gave as OIDs: they open no catalog themselves, so they never wait for one.
SELECT 'database'::text, d.oid, d.datname::text, NULL::text, pg_catalog.pg_encoding_to_char(d.encoding)::text
  FROM pg_catalog.pg_database d WHERE d.oid = ANY ($1::pg_catalog.oid[])
UNION ALL
SELECT 'role', r.oid, r.rolname::text, NULL, NULL FROM pg_catalog.pg_roles r WHERE r.oid = ANY ($2::pg_catalog.oid[])
UNION ALL
SELECT 'relation', c.oid, n.nspname::text, c.relname::text, NULL
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY ($3::pg_catalog.oid[])
