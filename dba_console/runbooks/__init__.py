"""A document becomes a run: read, checked, compiled, walked. Pure: what touches the world is asked of the caller."""
