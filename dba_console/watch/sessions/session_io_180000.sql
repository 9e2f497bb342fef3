-- What sessions read, wrote and added to WAL (18 counts it by session). A session adds to its counters at the end of a
-- transaction, at most once a second, and when idle for 10 s: one that is idle for longer has none to add, and is left
-- out. 200 rows at most: those that work before those that are idle, the oldest transactions first.
SELECT session.pid, session.backend_start, session.xact_age_s, io.read_bytes, io.write_bytes,
       wal.wal_bytes::int8 AS wal_bytes
  FROM (SELECT pid, backend_start,
               extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)::float8 AS xact_age_s
          FROM pg_catalog.pg_stat_get_activity(NULL)
         WHERE state <> 'idle' OR state_change > pg_catalog.clock_timestamp() - interval '12 s'
         ORDER BY state = 'idle', xact_start
         LIMIT 200) AS session,
       LATERAL (SELECT pg_catalog.sum(read_bytes)::int8 AS read_bytes,
                       (pg_catalog.sum(write_bytes) + pg_catalog.sum(extend_bytes))::int8 AS write_bytes
                  FROM pg_catalog.pg_stat_get_backend_io(session.pid)) AS io,
       LATERAL pg_catalog.pg_stat_get_backend_wal(session.pid) AS wal
