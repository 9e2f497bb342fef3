-- pg_stat_io, new in 16: rows that changed since the reset; bytes are counts of op_bytes.
SELECT backend_type, object, context, reads, reads * op_bytes, read_time, writes, writes * op_bytes, write_time,
       extends, hits, evictions, fsyncs, fsync_time
  FROM pg_catalog.pg_stat_io
 WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(hits, 0) + coalesce(fsyncs, 0) > 0
