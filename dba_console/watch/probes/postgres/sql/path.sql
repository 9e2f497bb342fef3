-- Start of a connection's first transaction: until then the database owner's search_path decides which functions,
-- operators, casts and views are used, and the owner may have set a role, which is reset. This query must contain no cast
-- and no operator.
SELECT current_user,
       session_user,
       pg_catalog.set_config('role', 'none', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true)
