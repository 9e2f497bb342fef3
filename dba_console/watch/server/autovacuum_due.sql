-- Tables of the connected database that autovacuum would process next (documentation, 24.1.6): numbers divided by their
-- thresholds. A table for which autovacuum is off is due only to prevent wraparound.
WITH options AS MATERIALIZED (
    SELECT pg_catalog.current_setting('autovacuum_vacuum_threshold')::float8 AS vacuum_threshold,
           pg_catalog.current_setting('autovacuum_vacuum_scale_factor')::float8 AS vacuum_scale,
           nullif(pg_catalog.current_setting('autovacuum_vacuum_max_threshold', true)::float8, -1) AS vacuum_most,
           pg_catalog.current_setting('autovacuum_vacuum_insert_threshold')::float8 AS insert_threshold,
           pg_catalog.current_setting('autovacuum_vacuum_insert_scale_factor')::float8 AS insert_scale,
           pg_catalog.current_setting('autovacuum_analyze_threshold')::float8 AS analyze_threshold,
           pg_catalog.current_setting('autovacuum_analyze_scale_factor')::float8 AS analyze_scale,
           pg_catalog.current_setting('autovacuum_freeze_max_age')::float8 AS freeze_age
), tables AS (
    SELECT c.oid, c.relnamespace, c.relname, c.reloptions, c.relpages AS pages, c.relfrozenxid,
           greatest(c.reltuples, 0)::float8 AS live,
           pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead,
           pg_catalog.pg_stat_get_ins_since_vacuum(c.oid) AS inserted,
           pg_catalog.pg_stat_get_mod_since_analyze(c.oid) AS changed
      FROM pg_catalog.pg_class c
     WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
    OFFSET 0
), due AS (
    SELECT t.*, coalesce(r.enabled, true) AS enabled,
           t.dead / greatest(1, least(coalesce(r.vacuum_threshold, o.vacuum_threshold)
                                      + coalesce(r.vacuum_scale, o.vacuum_scale) * t.live,
                                      coalesce(nullif(r.vacuum_most, -1), o.vacuum_most))) AS dead_share,
           CASE WHEN coalesce(r.insert_threshold, o.insert_threshold) < 0 THEN 0
                ELSE t.inserted / greatest(1, coalesce(r.insert_threshold, o.insert_threshold)
                                              + coalesce(r.insert_scale, o.insert_scale) * t.live) END AS inserted_share,
           t.changed / greatest(1, coalesce(r.analyze_threshold, o.analyze_threshold)
                                   + coalesce(r.analyze_scale, o.analyze_scale) * t.live) AS changed_share,
           pg_catalog.age(t.relfrozenxid) / least(o.freeze_age, r.freeze_age) AS age_share
      FROM tables t
     CROSS JOIN options o
     CROSS JOIN LATERAL (
        SELECT pg_catalog.bool_and(x.option_value::bool) FILTER (WHERE x.option_name = 'autovacuum_enabled') AS enabled,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_threshold')
                 AS vacuum_threshold,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_scale_factor')
                 AS vacuum_scale,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_max_threshold')
                 AS vacuum_most,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_insert_threshold')
                 AS insert_threshold,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_insert_scale_factor')
                 AS insert_scale,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_analyze_threshold')
                 AS analyze_threshold,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_analyze_scale_factor')
                 AS analyze_scale,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_freeze_max_age')
                 AS freeze_age
          FROM pg_catalog.pg_options_to_table(t.reloptions) x
      ) r
)
SELECT n.nspname || '.' || d.relname AS name, d.dead_share AS dead, d.inserted_share AS inserted,
       CASE WHEN n.nspname = 'pg_catalog' AND d.relname = 'pg_statistic' THEN 0 ELSE d.changed_share END AS changed,
       d.age_share AS age, d.pages
  FROM due d
  JOIN pg_catalog.pg_namespace n ON n.oid = d.relnamespace
 WHERE d.age_share >= 1
    OR d.enabled AND (d.dead_share > 1 OR d.inserted_share > 1
                      OR d.changed_share > 1 AND d.relname <> 'pg_statistic')
 ORDER BY d.age_share >= 1 DESC, greatest(d.dead_share, d.inserted_share, d.changed_share) DESC
 LIMIT 20
