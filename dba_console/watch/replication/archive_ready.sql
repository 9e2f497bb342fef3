-- WAL files waiting to be archived, and since when the oldest waits.
SELECT pg_catalog.count(*) AS ready_count, pg_catalog.min(f.modification) AS oldest_ready_at
  FROM pg_catalog.pg_ls_archive_statusdir() f
 WHERE pg_catalog.right(f.name, 6) = '.ready'
