-- Extensions of the connected database.
SELECT extname AS name FROM pg_catalog.pg_extension ORDER BY extname
