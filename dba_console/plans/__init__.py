"""What a runbook is once it has been read, and how a run of it looks: records only, for every room."""
