"""Long jobs remembered: seen among the sessions, kept in a file per target, told in the part `jobs`."""
