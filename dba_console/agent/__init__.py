"""The agent: the process that reads a target every second, records, evaluates findings, executes runs."""
