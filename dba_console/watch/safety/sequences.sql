-- Sequences of the connected database that have used half of their numbers, by their own limit or their column's type.
-- Reading the last value takes a weak lock on the sequence (ROW EXCLUSIVE, as nextval does) until this statement ends,
-- so only the hundred that can have used the most are read, and none that is being altered or dropped.
WITH every AS (
    SELECT s.seqrelid, n.nspname::text AS schema, c.relname::text AS name, s.seqincrement, s.seqmin, s.seqmax,
           t.relname::text AS owner, a.attname::text AS attribute,
           CASE coalesce(nullif(y.typbasetype, 0), y.oid)
             WHEN 'pg_catalog.int2'::pg_catalog.regtype THEN 32767
             WHEN 'pg_catalog.int4'::pg_catalog.regtype THEN 2147483647
             ELSE 9223372036854775807
           END AS most,
           CASE WHEN t.relkind = 'r'
                THEN greatest(t.reltuples::float8, pg_catalog.pg_stat_get_tuples_inserted(t.oid)::float8)
           END AS rows
      FROM pg_catalog.pg_sequence s
      JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_depend d
        ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
       AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjsubid > 0
      LEFT JOIN pg_catalog.pg_class t ON t.oid = d.refobjid
      LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
      LEFT JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
     WHERE NOT s.seqcycle AND c.relpersistence = 'p'
       AND CASE WHEN c.relkind = 'S' THEN pg_catalog.has_sequence_privilege(c.oid, 'SELECT, USAGE') END
), bounded AS (
    SELECT e.*, CASE WHEN e.seqincrement > 0 THEN e.seqmin ELSE e.seqmax END AS start,
           CASE WHEN e.seqincrement > 0 THEN least(e.seqmax, e.most) ELSE greatest(e.seqmin, -e.most - 1) END AS stop
      FROM every e
), read AS MATERIALIZED (
    SELECT b.*, (b.stop::float8 - b.start) / b.seqincrement AS numbers
      FROM bounded b
     WHERE (b.stop::float8 - b.start) / b.seqincrement BETWEEN 1 AND 1e12
       AND b.seqrelid NOT IN (SELECT l.relation FROM pg_catalog.pg_locks l
                               WHERE l.locktype = 'relation'
                                 AND l.mode IN ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))
     ORDER BY b.rows / ((b.stop::float8 - b.start) / b.seqincrement) DESC NULLS FIRST
     LIMIT 100
), last_values AS MATERIALIZED (
    SELECT r.*, pg_catalog.pg_sequence_last_value(r.seqrelid) AS last FROM read r
)
SELECT schema || '.' || name AS name, owner || '.' || attribute AS "column", last, start, stop,
       seqincrement AS increment
  FROM last_values
 WHERE (last::float8 - start) / seqincrement >= 0.5 * numbers
 ORDER BY (last::float8 - start) / seqincrement / numbers DESC
 LIMIT 20
