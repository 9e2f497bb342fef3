-- Files in pg_wal.
SELECT pg_catalog.count(*) AS wal_files, pg_catalog.sum(f.size)::int8 AS wal_files_bytes
  FROM pg_catalog.pg_ls_waldir() f
