"""The history of dumps and restores on a server: one file per server, written by all its agents."""
