-- 18 counts bytes itself, since a request may now be larger than a block, and has rows for WAL.
SELECT backend_type, object, context, reads, read_bytes::int8, read_time, writes, write_bytes::int8, write_time,
       extends, hits, evictions, fsyncs, fsync_time
  FROM pg_catalog.pg_stat_io
 WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(hits, 0) + coalesce(fsyncs, 0) > 0
