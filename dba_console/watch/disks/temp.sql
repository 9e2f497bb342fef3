-- Temporary files on disk now, by tablespace and the backend that created them, largest first.
SELECT t.spcname::text AS tablespace, pg_catalog.substring(f.name, '^pgsql_tmp([0-9]{1,9})')::int4 AS pid,
       pg_catalog.count(*) AS files, pg_catalog.sum(f.size)::int8 AS bytes
  FROM pg_catalog.pg_tablespace t, LATERAL pg_catalog.pg_ls_tmpdir(t.oid) f
 WHERE t.spcname <> 'pg_global'
 GROUP BY 1, 2
 ORDER BY 4 DESC, 1, 2
 LIMIT 100
