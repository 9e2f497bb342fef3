-- The next transaction id and multixact id. The next multixact is the one that ages are counted from.
SELECT pg_catalog.clock_timestamp() AS now_us,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8 AS next_xid,
       (SELECT (datminmxid::text::int8 + pg_catalog.mxid_age(datminmxid)) % 4294967296
          FROM pg_catalog.pg_database LIMIT 1) AS next_mxid
