-- Databases, their encodings and limits.
SELECT oid, datname::text, pg_catalog.pg_encoding_to_char(encoding)::text, datconnlimit, datallowconn, datistemplate
  FROM pg_catalog.pg_database
 ORDER BY datname
 LIMIT 2000
