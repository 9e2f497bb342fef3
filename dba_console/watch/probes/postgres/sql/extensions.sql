-- Extensions of the connected database.
SELECT extname::text FROM pg_catalog.pg_extension ORDER BY extname
