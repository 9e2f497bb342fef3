-- The server's clock, for ages that do not depend on ours.
SELECT pg_catalog.clock_timestamp()
