-- Size of this database on disk. The server stats all its files and opens no relation.
SELECT pg_catalog.pg_database_size(pg_catalog.current_database())
