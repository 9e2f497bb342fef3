-- Databases, their encodings and limits, the tablespace of those outside the data directory, and the mark of a restore
-- that is not finished (runbook restore).
SELECT d.oid, d.datname AS name, pg_catalog.pg_encoding_to_char(d.encoding) AS encoding,
       d.datconnlimit AS connection_limit, d.datallowconn AS allow_connections, d.datistemplate AS is_template,
       nullif(t.spcname, 'pg_default') AS tablespace,
       (SELECT pg_catalog.max(pg_catalog.substr(c.entry, 23))
          FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS c (entry)
         WHERE s.setdatabase = d.oid AND s.setrole = 0 AND pg_catalog.starts_with(c.entry, 'dba_console.restoring='))
         AS restored_from
  FROM pg_catalog.pg_database d
  LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = d.dattablespace
 ORDER BY d.datname
 LIMIT 2000
