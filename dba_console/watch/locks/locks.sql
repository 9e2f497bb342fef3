-- Sessions waiting for a heavyweight lock, what their blockers hold, and when both were started; pg_blocking_pids() only for those that wait.
WITH locks AS MATERIALIZED (
    SELECT * FROM pg_catalog.pg_lock_status()
), waiting AS MATERIALIZED (
    SELECT p.pid, pg_catalog.pg_blocking_pids(p.pid) AS blocked_by
      FROM (SELECT DISTINCT pid FROM locks WHERE NOT granted) p
), waits AS MATERIALIZED (
    SELECT l.*, w.blocked_by FROM locks l JOIN waiting w USING (pid) WHERE NOT l.granted
)
SELECT 'waits'::text, l.pid, l.blocked_by, l.locktype, l.mode, NULL::timestamptz,
       -- A wait for a row is a wait for its transaction; the row lock in the queue shows the table.
       coalesce(l.database, row_lock.database), coalesce(l.relation, row_lock.relation)
  FROM waits l
  LEFT JOIN LATERAL (SELECT t.database, t.relation FROM locks t
                      WHERE t.pid = l.pid AND t.granted AND t.locktype = 'tuple' AND l.relation IS NULL
                      LIMIT 1) row_lock ON true
UNION ALL
SELECT DISTINCT 'holds', coalesce(h.pid, 0), NULL::int4[], h.locktype, h.mode, NULL::timestamptz, h.database, h.relation
  FROM waits l
  JOIN locks h ON h.granted AND h.locktype = l.locktype AND coalesce(h.pid, 0) = ANY (l.blocked_by)
   AND (h.database, h.relation, h.page, h.tuple, h.virtualxid, h.transactionid, h.classid, h.objid, h.objsubid)
       IS NOT DISTINCT FROM
       (l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid, l.objsubid)
UNION ALL
-- Pids are reused: who waits and who blocks is known by the start of the backend too.
SELECT 'sessions', a.pid, NULL, NULL, NULL, a.backend_start, NULL, NULL
  FROM pg_catalog.pg_stat_get_activity(NULL) a
 WHERE a.pid IN (SELECT pid FROM waits UNION ALL SELECT pg_catalog.unnest(blocked_by) FROM waits)
