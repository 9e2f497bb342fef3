-- Prepended to each transaction, for a pooler that assigns a server connection per transaction. No cast and no
-- operator: their names would be looked up in a search_path set by another client.
SELECT pg_catalog.set_config('role', 'none', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', $1, true),
       pg_catalog.set_config('lock_timeout', $2, true),
       pg_catalog.set_config('jit', 'off', true)
