-- Tablespaces outside the data directory.
SELECT spcname::text, pg_catalog.pg_tablespace_location(oid)
  FROM pg_catalog.pg_tablespace
 WHERE spcname NOT IN ('pg_default', 'pg_global')
 ORDER BY spcname
