-- How large this database is on disk. The server looks at all its files and opens no relation.
SELECT pg_catalog.pg_database_size(pg_catalog.current_database())
