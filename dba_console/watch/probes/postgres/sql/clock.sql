-- The server's clock, for ages that do not depend on the console's clock; and at how many bytes it cuts statements.
SELECT pg_catalog.clock_timestamp(),
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('track_activity_query_size'))::int4
