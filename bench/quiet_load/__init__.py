"""An hour of ordinary life on a database host, for `bench.quiet`: what is done when, and by which real programs."""
