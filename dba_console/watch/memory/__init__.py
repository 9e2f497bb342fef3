"""The subject memory: page cache, free memory, reclaim and its cost, swap, kernel settings."""
