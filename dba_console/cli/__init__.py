"""One module per command; stdout is data, stderr is diagnostics."""
