"""The steps of a cutover, each an action of a runbook that can be shown, done, settled after a crash, and undone."""
