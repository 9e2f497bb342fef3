-- Tables of the connected database with more dead rows than autovacuum leaves (documentation, 24.1.6), worst first.
SELECT n.nspname || '.' || o.relname AS name, o.dead, pg_catalog.trunc(o.live)::int8 AS live,
       pg_catalog.trunc(o.trigger_at)::int8 AS trigger, o.enabled,
       pg_catalog.pg_stat_get_autovacuum_count(o.oid) + pg_catalog.pg_stat_get_vacuum_count(o.oid) AS vacuums,
       greatest(pg_catalog.pg_stat_get_last_autovacuum_time(o.oid),
                pg_catalog.pg_stat_get_last_vacuum_time(o.oid)) AS last_vacuum
  FROM (
    SELECT t.oid, t.relnamespace, t.relname, t.dead, t.live, coalesce(r.enabled, true) AS enabled,
           least(coalesce(r.threshold, pg_catalog.current_setting('autovacuum_vacuum_threshold')::float8)
                 + coalesce(r.scale, pg_catalog.current_setting('autovacuum_vacuum_scale_factor')::float8) * t.live,
                 nullif(coalesce(r.most, pg_catalog.current_setting('autovacuum_vacuum_max_threshold', true)::float8),
                        -1)) AS trigger_at
      FROM (
        SELECT c.oid, c.relnamespace, c.relname, c.reloptions, greatest(c.reltuples, 0)::float8 AS live,
               pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead
          FROM pg_catalog.pg_class c
         WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
        OFFSET 0
      ) t
     CROSS JOIN LATERAL (
        SELECT pg_catalog.bool_and(x.option_value::bool) FILTER (WHERE x.option_name = 'autovacuum_enabled') AS enabled,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_threshold') AS threshold,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_scale_factor') AS scale,
               pg_catalog.max(x.option_value::float8) FILTER (WHERE x.option_name = 'autovacuum_vacuum_max_threshold') AS most
          FROM pg_catalog.pg_options_to_table(t.reloptions) x
      ) r
     WHERE t.dead >= 10000
  ) o
  JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace
 WHERE o.dead > o.trigger_at
 ORDER BY o.dead / (o.trigger_at + 1) DESC
 LIMIT 20
