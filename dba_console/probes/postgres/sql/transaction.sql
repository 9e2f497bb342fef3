-- The manners of one transaction, for a pooler that lends its connections from transaction to transaction.
SELECT pg_catalog.set_config('statement_timeout', $1::text, true),
       pg_catalog.set_config('lock_timeout', $2::text, true),
       pg_catalog.set_config('search_path', 'pg_catalog', true),
       pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('transaction_read_only', 'on', true)
