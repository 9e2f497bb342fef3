"""The subject I/O: CPU and pressure, block devices, stalls, and pg_stat_io."""
