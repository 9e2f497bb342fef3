-- Distance to wraparound of all databases, including template0.
SELECT datname::text AS name, pg_catalog.age(datfrozenxid) AS xid_age, pg_catalog.mxid_age(datminmxid) AS mxid_age
  FROM pg_catalog.pg_database
 ORDER BY xid_age DESC
 LIMIT 2000
