"""The history of dumps and restores on a server: one file per target, merged for all targets of one server."""
