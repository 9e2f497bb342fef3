-- The server's clock, for ages that do not depend on the console's clock.
SELECT pg_catalog.clock_timestamp()
