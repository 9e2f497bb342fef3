"""The PostgreSQL side: one pinned connection, SQL as files, one round trip per cadence."""
