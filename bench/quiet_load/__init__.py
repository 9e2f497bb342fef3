"""The load of `bench.quiet`: a schedule of ordinary activities on a database host, done by real programs."""
