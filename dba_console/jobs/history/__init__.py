"""The history of dumps and restores on a server: one file per target, merged where it is one server."""
