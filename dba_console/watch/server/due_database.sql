-- The connected database, which the due tables belong to.
SELECT pg_catalog.current_database()::text AS database
