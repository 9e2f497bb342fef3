"""The steps of a cutover or failover, each an action: previewed, executed, settled after a crash, undone."""
