-- Files in pg_wal.
SELECT pg_catalog.count(*), pg_catalog.sum(f.size)::int8 FROM pg_catalog.pg_ls_waldir() f
