"""Safety: checksums, distance to transaction ID wraparound, the xmin horizon, autovacuum, faults in the catalogs."""
