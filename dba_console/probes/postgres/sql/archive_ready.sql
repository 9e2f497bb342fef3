-- WAL files that wait to be archived.
SELECT pg_catalog.count(*) FROM pg_catalog.pg_ls_archive_statusdir() f WHERE pg_catalog.right(f.name, 6) = '.ready'
