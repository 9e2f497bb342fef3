"""The server: identity, restarts, settings, its own I/O, checkpoints, caches, autovacuum; whether it can be reached."""
