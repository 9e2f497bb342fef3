-- What the first transaction of a connection begins with: until then the owner of the database decides, by its
-- search_path, which functions, operators, casts and views are meant. No cast and no operator may be in here.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true)
