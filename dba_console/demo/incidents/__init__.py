"""Incidents to rehearse: each makes the real thing happen on a practice server, and undoes it."""
