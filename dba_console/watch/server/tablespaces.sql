-- Tablespaces outside the data directory.
SELECT spcname AS name, pg_catalog.pg_tablespace_location(oid) AS location
  FROM pg_catalog.pg_tablespace
 WHERE spcname NOT IN ('pg_default', 'pg_global')
 ORDER BY spcname
