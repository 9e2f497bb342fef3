"""Rules on the real thing: a real server, real file systems, real processes, read by the agent's own collector."""
