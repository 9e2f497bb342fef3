"""The command line: one module per command. stdout is data, stderr is diagnostics."""
