"""Nodes and poolers of a configured cluster: what they are now, what differs, whether a cutover can begin."""
