-- Start of a connection's first transaction: until then the database owner's search_path decides which functions,
-- operators, casts and views are used. This query must contain no cast and no operator.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true)
