-- Distance to wraparound of all databases, including template0. The next multixact is the one the age is counted from.
SELECT pg_catalog.clock_timestamp(),
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8,
       (datminmxid::text::int8 + pg_catalog.mxid_age(datminmxid)) % 4294967296,
       datname::text, pg_catalog.age(datfrozenxid), pg_catalog.mxid_age(datminmxid)
  FROM pg_catalog.pg_database
 ORDER BY 5 DESC
 LIMIT 2000
