"""Replication and WAL: standbys, slots, subscriptions, recovery of a standby, archiving, checkpoints."""
