"""Reports and exports, made from a session on disk: no agent and no server is needed."""
