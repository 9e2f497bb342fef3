-- The connected database, which indexes, sequences and dead rows belong to.
SELECT pg_catalog.current_database()::text AS database
