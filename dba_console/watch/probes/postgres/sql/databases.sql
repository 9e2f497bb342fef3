-- Databases, their encodings and limits, and the tablespace of those outside the data directory.
SELECT d.oid, d.datname::text, pg_catalog.pg_encoding_to_char(d.encoding)::text, d.datconnlimit, d.datallowconn,
       d.datistemplate, nullif(t.spcname, 'pg_default')
  FROM pg_catalog.pg_database d
  LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = d.dattablespace
 ORDER BY d.datname
 LIMIT 2000
