"""Incidents to rehearse: each really happens on a practice server, and is undone at the end."""
