-- Sizes of a few databases: the server looks at every file of each, so only as many are asked as proved to be cheap.
SELECT d.oid, pg_catalog.pg_database_size(d.oid) FROM pg_catalog.pg_database d WHERE d.oid = ANY ($1::pg_catalog.oid[])
