"""A practice ground: an embedded cluster with a real load."""
